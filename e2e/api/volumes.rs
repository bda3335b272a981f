//! Volumes and certificates: on, off, on; kept, grown, refused.

use aiscope_operator::api::tracking_server::TrackingServer;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::kit::{Case, Outcome, certificate, condition, holds, ingress_route, minimal, trial, until};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("volume_and_certificate_go_on_and_off_and_on_without_leftovers", on_off_on),
        trial("the_route_follows_a_certificate_that_somebody_else_brings_and_takes", foreign_certificate),
        trial("a_retained_volume_outlives_its_resource_and_is_taken_up_again", retained),
        trial("a_volume_grows_but_never_shrinks_nor_changes_its_class", grow_only),
        trial("a_broken_certificate_keeps_the_last_good_one", broken_certificate),
        trial("a_volume_that_stays_pending_says_why", pending),
        trial("a_certificate_that_ends_soon_is_told_before_and_stays_in_use", expiring),
    ]
}

fn with_volume(mut spec: Value, size: &str) -> Value {
    spec["volumeSize"] = json!(size);
    spec["storageClassName"] = json!(if size.is_empty() { "" } else { "standard" });
    spec
}

fn tls(route: Option<&DynamicObject>) -> Option<&Value> {
    route.and_then(|r| r.data["spec"].get("tls"))
}

async fn on_off_on() -> Outcome {
    let case = Case::new("onoffon").await?;
    let operator = case.operator();
    let (cert, key) = certificate("ml.example.com");
    let mut both = with_volume(minimal(), "1Gi");
    both["cert"] = json!(cert);
    both["key"] = json!(key);
    both["url"] = json!("https://ml.example.com/x");
    let mut neither = with_volume(minimal(), "");
    neither["cert"] = json!("");
    neither["key"] = json!("");
    for _ in 0..2 {
        case.serve("a", both.clone()).await?;
        let ready = case.until_ready("a").await?;
        assert!(ready.status.as_ref().is_some_and(|s| s.certificate_not_after.is_some()));
        assert_eq!(case.all::<Secret>().get("a").await?.type_.as_deref(), Some("kubernetes.io/tls"));
        until(case.dynamic(&ingress_route()), "a", "with TLS", |r| tls(r).is_some_and(|t| t["secretName"] == "a"))
            .await?;
        assert!(mounts(&case.all::<Deployment>().get("a").await?));

        case.serve("a", neither.clone()).await?;
        case.until_gone::<PersistentVolumeClaim>("a").await?;
        case.until_gone::<Secret>("a").await?;
        until(case.dynamic(&ingress_route()), "a", "without TLS", |r| r.is_some() && tls(r).is_none()).await?;
        case.until_ready("a").await?;
        assert!(!mounts(&case.all::<Deployment>().get("a").await?));
    }
    operator.stop().await
}

fn mounts(deployment: &Deployment) -> bool {
    serde_json::to_string(deployment).unwrap_or_default().contains("persistentVolumeClaim")
}

async fn foreign_certificate() -> Outcome {
    let case = Case::new("foreigntls").await?;
    let operator = case.operator();
    case.serve("a", minimal()).await?;
    case.until_ready("a").await?;
    let (cert, key) = certificate("ml.example.com");
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": "a" }, "type": "kubernetes.io/tls",
        "data": { "tls.crt": base64(&cert), "tls.key": base64(&key) },
    }))?;
    let made = case.all::<Secret>().create(&kube::api::PostParams::default(), &secret).await?;
    until(case.dynamic(&ingress_route()), "a", "with TLS", |r| tls(r).is_some_and(|t| t["secretName"] == "a")).await?;
    case.until("a", "judged", |ts: &TrackingServer| {
        ts.status.as_ref().is_some_and(|s| s.certificate_not_after.is_some())
    })
    .await?;
    assert_eq!(case.all::<Secret>().get("a").await?.resource_version(), made.resource_version());
    case.all::<Secret>().delete("a", &DeleteParams::default()).await?;
    until(case.dynamic(&ingress_route()), "a", "without TLS", |r| r.is_some() && tls(r).is_none()).await?;
    operator.stop().await
}

fn base64(text: &str) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap_or_default()
}

async fn retained() -> Outcome {
    let case = Case::new("retained").await?;
    let operator = case.operator();
    let mut spec = with_volume(minimal(), "1Gi");
    case.serve("a", spec.clone()).await?;
    case.until_ready("a").await?;
    let claim = case.all::<PersistentVolumeClaim>().get("a").await?;
    // Kept and turned off in one edit: the policy counts.
    let mut off = with_volume(minimal(), "");
    off["volumeReclaimPolicy"] = json!("Retain");
    case.serve("a", off).await?;
    case.until("a", "released", |c: &PersistentVolumeClaim| c.owner_references().is_empty()).await?;
    case.until_ready("a").await?;
    case.all::<TrackingServer>().delete("a", &DeleteParams::default()).await?;
    case.until_gone::<Deployment>("a").await?;
    spec["volumeReclaimPolicy"] = json!("Retain");
    case.serve("a", spec).await?;
    case.until_ready("a").await?;
    let kept = case.all::<PersistentVolumeClaim>().get("a").await?;
    assert_eq!((kept.uid(), kept.metadata.deletion_timestamp), (claim.uid(), None));
    operator.stop().await
}

async fn grow_only() -> Outcome {
    let case = Case::new("growonly").await?;
    let operator = case.operator();
    case.serve("a", with_volume(minimal(), "1Gi")).await?;
    case.until_ready("a").await?;
    case.serve("a", with_volume(minimal(), "2048Mi")).await?;
    let grown = case.until("a", "2Gi", |c: &PersistentVolumeClaim| request(c) == Some("2Gi")).await?;
    case.serve("a", with_volume(minimal(), "1Gi")).await?;
    case.until_reason("a", "Stalled", "VolumeCannotShrink").await?;
    let mut moved = with_volume(minimal(), "2Gi");
    moved["storageClassName"] = json!("other");
    case.serve("a", moved).await?;
    case.until_reason("a", "Stalled", "VolumeClassImmutable").await?;
    let claim = case.all::<PersistentVolumeClaim>().get("a").await?;
    assert_eq!((claim.uid(), request(&claim)), (grown.uid(), Some("2Gi")));
    case.serve("a", with_volume(minimal(), "2Gi")).await?;
    case.until_ready("a").await?;
    operator.stop().await
}

fn request(claim: &PersistentVolumeClaim) -> Option<&str> {
    Some(claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")?.0.as_str())
}

async fn broken_certificate() -> Outcome {
    let case = Case::new("brokencert").await?;
    let operator = case.operator();
    let ((cert, key), (_, other)) = (certificate("ml.example.com"), certificate("ml.example.com"));
    let with = |cert: &str, key: &str| {
        let mut spec = minimal();
        spec["cert"] = json!(cert);
        spec["key"] = json!(key);
        spec
    };
    case.serve("a", with(&cert, &key)).await?;
    case.until_ready("a").await?;
    let good = case.all::<Secret>().get("a").await?;
    for (bad_cert, bad_key) in [(cert.as_str(), other.as_str()), (&cert, ""), ("", &key), ("rubbish", &key)] {
        case.serve("a", with(bad_cert, bad_key)).await?;
        let told = case.until_reason("a", "Stalled", "InvalidCertificate").await?;
        assert!(condition(&told, "Degraded").is_some_and(|c| !c.message.contains("PRIVATE")));
        assert_eq!(case.all::<Secret>().get("a").await?.resource_version(), good.resource_version());
    }
    let (elsewhere, its_key) = certificate("elsewhere.example.com");
    case.serve("a", with(&elsewhere, &its_key)).await?;
    let told = case.until_reason("a", "Degraded", "CertificateHostMismatch").await?;
    assert!(holds(&told, "Ready", "True"), "{told:#?}");
    case.serve("a", with(&cert, &key)).await?;
    case.until("a", "healed", |ts: &TrackingServer| holds(ts, "Ready", "True") && holds(ts, "Degraded", "False"))
        .await?;
    operator.stop().await
}

async fn pending() -> Outcome {
    let case = Case::new("pending").await?;
    let operator = case.operator();
    let mut spec = with_volume(minimal(), "1Gi");
    spec["storageClassName"] = json!("no-such-class");
    case.serve("a", spec).await?;
    case.until("a", "told why", |ts: &TrackingServer| {
        condition(ts, "Ready").is_some_and(|c| {
            c.message.contains("no-such-class") && c.message.contains("PersistentVolumeClaim a is Pending")
        }) && condition(ts, "Reconciling").is_some_and(|c| c.reason == "VolumePending" || c.reason == "Progressing")
    })
    .await?;
    operator.stop().await
}

async fn expiring() -> Outcome {
    let case = Case::new("expiring").await?;
    let operator = case.operator();
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(["ml.example.com".to_owned()])?;
    let expiry = |days: i64| k8s_openapi::jiff::SignedDuration::from_hours(24 * days).as_secs();
    let base = case.all::<Secret>();
    for (days, reason) in [(20, "ExpiresWithin30Days"), (3, "ExpiresWithin7Days")] {
        // The API server's clock is this machine's.
        let now = case.serve("clock", minimal()).await?.metadata.creation_timestamp.ok_or("no time")?.0;
        let end = now
            .checked_add(k8s_openapi::jiff::SignedDuration::from_secs(expiry(days)))?
            .to_zoned(k8s_openapi::jiff::tz::TimeZone::UTC);
        let part = |value: i8| u8::try_from(value).unwrap_or(1);
        params.not_after = rcgen::date_time_ymd(end.year().into(), part(end.month()), part(end.day()));
        let mut spec = minimal();
        spec["url"] = json!("https://ml.example.com/expiring");
        spec["cert"] = json!(params.self_signed(&key)?.pem());
        spec["key"] = json!(key.serialize_pem());
        case.serve("a", spec).await?;
        let told = case.until_reason("a", "CertificateExpiring", reason).await?;
        assert!(holds(&told, "Degraded", "False"), "{told:#?}");
        case.until_ready("a").await?;
        assert_eq!(base.get("a").await?.type_.as_deref(), Some("kubernetes.io/tls"));
    }
    let events = case.all::<Event>();
    let fields = "involvedObject.name=a,involvedObject.kind=TrackingServer,reason=CertificateExpiring";
    let listed = events.list(&ListParams::default().fields(fields)).await?;
    assert!(listed.items.iter().any(|e| e.type_.as_deref() == Some("Warning")), "{listed:?}");
    operator.stop().await
}
