//! From a resource to standing children and back.

use aiscope_operator::api::tracking_server::TrackingServer;
use aiscope_operator::engine::child::OWNER_LABEL;
use aiscope_operator::engine::digest;
use aiscope_operator::engine::summary::summarize;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Secret, Service};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::kit::{Case, Outcome, condition, gitops, holds, ingress_route, middleware, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("the_sample_becomes_ready_and_kubectl_shows_it", the_sample_becomes_ready),
        trial("every_child_carries_its_owner_and_nothing_of_its_owners_labels", children_carry_their_owner),
        trial("kubectl_scale_reaches_the_deployment_and_zero_is_ready", scale),
        trial("deleting_a_resource_takes_every_child_along_and_its_name_can_be_used_again", delete_and_recreate),
        trial("edits_of_children_by_hand_are_reverted", edits_are_reverted),
        trial("events_tell_changes_and_never_repeat", events),
        trial("children_and_finalizer_of_the_earlier_controller_are_taken_over", take_over),
        trial("a_changed_credential_rolls_the_pod", changed_credential_rolls),
        trial("render_prints_exactly_what_the_operator_applied", rendered_is_applied),
    ]
}

async fn the_sample_becomes_ready() -> Outcome {
    let case = Case::new("sample").await?;
    let operator = case.operator();
    case.kubectl(&["apply", "-f", "manifests/samples/trackingserver.yaml"]).await?;
    case.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "trackingserver/mlflow"]).await?;
    let table = case.kubectl(&["get", "trackingserver"]).await?;
    let columns: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(columns, ["NAME", "READY", "REASON", "S3_ENDPOINT_URL", "ARTIFACT_ROOT", "URL", "AGE"]);
    assert!(table.contains("True") && table.contains("http://ml.example.com/platform"), "{table}");
    let again = case.kubectl(&["apply", "--server-side", "-f", "manifests/samples/trackingserver.yaml"]).await?;
    assert!(again.contains("serverside-applied"), "{again}");
    operator.stop().await
}

async fn children_carry_their_owner() -> Outcome {
    let case = Case::new("stamped").await?;
    let operator = case.operator();
    let labelled = json!({
        "apiVersion": "experiment.aiscope/v1alpha2", "kind": "TrackingServer",
        "metadata": { "name": "a", "labels": { "app.kubernetes.io/instance": "argo" }, "annotations": { "tracking": "x" } },
        "spec": minimal(),
    });
    case.all::<TrackingServer>().patch("a", &gitops(), &Patch::Apply(&labelled)).await?;
    let server = case.until_ready("a").await?;
    let uid = server.uid().unwrap_or_default();
    let deployment = case.all::<Deployment>().get("a").await?;
    let service = case.all::<Service>().get("a").await?;
    for meta in [deployment.metadata, service.metadata] {
        let owners = meta.owner_references.clone().unwrap_or_default();
        assert!(matches!(owners.as_slice(), [o] if o.uid == uid && o.controller == Some(true)), "{owners:?}");
        assert_eq!(
            meta.labels.unwrap_or_default().into_iter().collect::<Vec<_>>(),
            [(OWNER_LABEL.to_owned(), uid.clone())]
        );
        assert!(!meta.annotations.unwrap_or_default().contains_key("tracking"));
    }
    operator.stop().await
}

async fn scale() -> Outcome {
    let case = Case::new("scale").await?;
    let operator = case.operator();
    let mut spec = minimal();
    spec["backend_uri"] = json!("postgresql://db/mlflow");
    case.serve("a", spec).await?;
    case.until_ready("a").await?;
    case.kubectl(&["scale", "trackingserver/a", "--replicas=2"]).await?;
    case.until("a", "2 replicas", |ts: &TrackingServer| {
        holds(ts, "Ready", "True") && ts.status.as_ref().is_some_and(|s| s.ready_replicas == Some(2))
    })
    .await?;
    case.kubectl(&["scale", "trackingserver/a", "--replicas=0"]).await?;
    let stopped = case.until_reason("a", "Ready", "ScaledToZero").await?;
    assert_eq!(condition(&stopped, "Degraded").map(|c| c.status.as_str()), Some("False"));
    operator.stop().await
}

async fn delete_and_recreate() -> Outcome {
    let case = Case::new("recreate").await?;
    let operator = case.operator();
    case.serve("a", minimal()).await?;
    case.until_ready("a").await?;
    let first = case.all::<Deployment>().get("a").await?.uid();
    // Made again at once: the old children are still there, and belong to the dead.
    case.all::<TrackingServer>().delete("a", &DeleteParams::default()).await?;
    case.until_gone::<TrackingServer>("a").await?;
    case.serve("a", minimal()).await?;
    case.until_ready("a").await?;
    assert_ne!(case.all::<Deployment>().get("a").await?.uid(), first);
    case.all::<TrackingServer>().delete("a", &DeleteParams::default()).await?;
    for (ar, name) in [(ingress_route(), "a"), (middleware(), "a")] {
        crate::kit::until(case.dynamic(&ar), name, "gone", |o: Option<&_>| o.is_none()).await?;
    }
    case.until_gone::<Deployment>("a").await?;
    case.until_gone::<Service>("a").await?;
    operator.stop().await
}

async fn edits_are_reverted() -> Outcome {
    let case = Case::new("edits").await?;
    let operator = case.operator();
    let mut spec = minimal();
    spec["aws_secret_key"] = json!("s3cret");
    case.serve("a", spec).await?;
    case.until_ready("a").await?;
    let by_hand = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    let image =
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "mlflow", "image": "evil:1" }] } } } });
    case.all::<Deployment>().patch("a", &by_hand, &Patch::Strategic(image)).await?;
    let selector = json!({ "spec": { "selector": { "app": "elsewhere" } } });
    case.all::<Service>().patch("a", &by_hand, &Patch::Merge(selector)).await?;
    let rule = json!({ "spec": { "routes": [{ "kind": "Rule", "match": "Host(\"stolen.example.com\")" }] } });
    case.dynamic(&ingress_route()).patch("a", &by_hand, &Patch::Merge(rule)).await?;
    case.all::<Secret>().delete("a-env", &DeleteParams::default()).await?;
    case.until("a", "reverted", |d: &Deployment| image_of(d) == Some("mlflow:3.17.2")).await?;
    case.until("a", "reverted", |s: &Service| {
        s.spec.as_ref().and_then(|s| s.selector.as_ref()).is_some_and(|s| s["app"] == "a")
    })
    .await?;
    crate::kit::until(case.dynamic(&ingress_route()), "a", "reverted", |o: Option<&kube::api::DynamicObject>| {
        o.is_some_and(|o| !o.data.to_string().contains("stolen"))
    })
    .await?;
    case.until("a-env", "there again", |s: &Secret| s.data.is_some()).await?;
    case.until_ready("a").await?;
    operator.stop().await
}

fn image_of(deployment: &Deployment) -> Option<&str> {
    deployment.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.as_deref()
}

async fn events() -> Outcome {
    let case = Case::new("events").await?;
    let operator = case.operator();
    case.serve("a", minimal()).await?;
    case.until_ready("a").await?;
    let mut bad = minimal();
    bad["url"] = json!("http://a b");
    // Refused at admission; the one below only in the status.
    assert!(case.serve("a", bad).await.is_err());
    let mut bad = minimal();
    bad["volumeSize"] = json!("lots");
    bad["storageClassName"] = json!("standard");
    case.serve("a", bad).await?;
    case.until_reason("a", "Stalled", "InvalidSpec").await?;
    case.serve("a", minimal()).await?;
    case.until_ready("a").await?;
    case.until_quiet(std::time::Duration::from_secs(1)).await?;
    let events = case
        .all::<Event>()
        .list(&ListParams::default().fields("involvedObject.name=a,involvedObject.kind=TrackingServer"))
        .await?;
    let mut told: Vec<_> =
        events.iter().map(|e| (e.reason.clone().unwrap_or_default(), e.message.clone().unwrap_or_default())).collect();
    told.sort();
    let (failed, synced): (Vec<_>, Vec<_>) = told.into_iter().partition(|(reason, _)| reason == "FailedSync");
    assert!(
        matches!(failed.as_slice(), [(_, message)] if message.contains("InvalidSpec") && message.contains("volumeSize")),
        "{failed:?}"
    );
    // Repeats within minutes are counted in one event's series.
    assert!(
        !synced.is_empty() && synced.iter().all(|(r, m)| r == "Synced" && m == "Trackingserver synced successfully"),
        "{synced:?}"
    );
    operator.stop().await
}

/// Children as the earlier controller left them: made by its own manager, with a field that nobody wants any more.
async fn take_over() -> Outcome {
    let case = Case::new("takeover").await?;
    let mut server = json!({
        "apiVersion": "experiment.aiscope/v1alpha2", "kind": "TrackingServer",
        "metadata": { "name": "a", "finalizers": ["finalizers.aiscope.io/trackingserver"] }, "spec": minimal(),
    });
    let made: TrackingServer =
        case.all().create(&PostParams::default(), &serde_json::from_value(server.take())?).await?;
    // What this operator would make, made by the earlier controller; then a field of its own on top.
    let rendered = case.render(&made).await?;
    for mut child in rendered {
        let labels = child["metadata"]["labels"].as_object_mut().ok_or("no labels")?;
        labels.remove(OWNER_LABEL);
        labels.insert("made-by".into(), json!("earlier"));
        if child["kind"] == "Service" {
            child["spec"]["sessionAffinity"] = json!("ClientIP");
        }
        let object: kube::api::DynamicObject = serde_json::from_value(child.clone())?;
        let ar = crate::kit::kind_of(&object)?;
        let params = PostParams { field_manager: Some("controller-manager".into()), ..PostParams::default() };
        case.dynamic(&ar).create(&params, &object).await?;
    }
    let before = case
        .until("a", "rolled out", |d: &Deployment| d.status.as_ref().is_some_and(|s| s.available_replicas == Some(1)))
        .await?;
    let operator = case.operator();
    let server = case
        .until("a", "released", |ts: &TrackingServer| ts.finalizers().is_empty() && holds(ts, "Ready", "True"))
        .await?;
    let after = case.all::<Deployment>().get("a").await?;
    assert_eq!(
        (before.uid(), before.metadata.generation),
        (after.uid(), after.metadata.generation),
        "the pods were replaced"
    );
    for (labels, managed) in [
        (after.labels().clone(), after.managed_fields().to_vec()),
        case.all::<Service>().get("a").await.map(|s| (s.labels().clone(), s.managed_fields().to_vec()))?,
    ] {
        assert_eq!(
            labels.into_iter().collect::<Vec<_>>(),
            [(OWNER_LABEL.to_owned(), server.uid().unwrap_or_default())]
        );
        assert!(managed.iter().all(|m| m.manager.as_deref() != Some("controller-manager")), "{managed:?}");
    }
    let affinity = case.all::<Service>().get("a").await?.spec.and_then(|s| s.session_affinity);
    assert_eq!(affinity.as_deref(), Some("None"), "a leftover field stays");
    operator.stop().await
}

async fn changed_credential_rolls() -> Outcome {
    let case = Case::new("credential").await?;
    let operator = case.operator();
    let secret = |value: &str| -> Value {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s3" }, "stringData": { "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": value } })
    };
    let mut spec = minimal();
    spec["credentialsSecretRef"] = json!({ "name": "s3" });
    case.serve("a", spec).await?;
    let waiting = case.until("a", "told what is missing", |ts: &TrackingServer| {
        condition(ts, "Ready").is_some_and(|c| c.reason == "SecretMissing" && c.message.contains("s3"))
    });
    waiting.await?;
    case.all::<Secret>().patch("s3", &gitops(), &Patch::Apply(secret("one-1"))).await?;
    case.until_ready("a").await?;
    let first = case.all::<Deployment>().get("a").await?;
    case.all::<Secret>().patch("s3", &gitops(), &Patch::Apply(secret("two-2"))).await?;
    let generation = first.metadata.generation;
    let second = case.until("a", "rolled", |d: &Deployment| d.metadata.generation > generation).await?;
    let text = serde_json::to_string(&(first, second, case.all::<TrackingServer>().get("a").await?))?;
    assert!(!text.contains("one-1") && !text.contains("two-2"), "a secret value is in the open");
    case.until_ready("a").await?;
    operator.stop().await
}

async fn rendered_is_applied() -> Outcome {
    let case = Case::new("rendered").await?;
    let operator = case.operator();
    let mut spec = minimal();
    spec["aws_secret_key"] = json!("x");
    spec["volumeSize"] = json!("1024Mi");
    spec["storageClassName"] = json!("standard");
    case.serve("a", spec).await?;
    let server = case.until_ready("a").await?;
    let rendered = case.render(&server).await?;
    assert_eq!(rendered.len(), 7, "Secret, volume claim, Service, Deployment, two Middlewares, IngressRoute");
    for child in rendered {
        let wanted: kube::api::DynamicObject = serde_json::from_value(child)?;
        let ar = crate::kit::kind_of(&wanted)?;
        let live = case.dynamic(&ar).get(&wanted.name_any()).await?;
        let ours = summarize(&ar, &live, &[]).digest;
        assert_eq!(ours, Some(digest::of_desired(&wanted)), "{} {}", ar.kind, wanted.name_any());
    }
    operator.stop().await
}
