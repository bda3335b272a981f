//! Bad input is refused where Kubernetes can see it, and told in the status where it cannot.

use aiscope_operator::api::tracking_server::TrackingServer;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, Patch, PatchParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::kit::{Case, Outcome, condition, holds, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_url_that_no_route_can_be_made_of_is_refused_at_admission", refused_urls),
        trial("a_spec_that_is_not_understood_writes_no_child_and_names_the_field", invalid_specs),
        trial("a_bad_edit_leaves_the_children_as_they_were_and_the_way_back_heals", bad_edit_and_back),
        trial("what_the_api_server_rejects_is_told_in_its_words", rejected),
    ]
}

async fn refused_urls() -> Outcome {
    let case = Case::new("urls").await?;
    for url in [
        "ftp://h/",
        "h.example.com",
        "http://",
        "http://u:p@h/",
        "http://h/`)||Host(`x",
        "http://h/a b",
        "http://h/\"",
        "https:///p",
    ] {
        let mut spec = minimal();
        spec["url"] = json!(url);
        let refused = case.serve("a", spec).await;
        assert!(
            matches!(&refused, Err(kube::Error::Api(s)) if s.code == 422 && s.message.contains("spec.url")),
            "{url}: {refused:?}"
        );
    }
    for url in ["http://h", "https://h.example.com:8443/a/b/", "http://10.0.0.1/x", ""] {
        let mut spec = minimal();
        spec["url"] = json!(url);
        case.serve("a", spec).await.map_err(|e| format!("{url} is sensible, but {e}"))?;
    }
    Ok(())
}

async fn invalid_specs() -> Outcome {
    let case = Case::new("invalid").await?;
    let operator = case.operator();
    let rows: [(&str, Value); 5] = [
        ("url", json!("")),
        ("image", json!("")),
        ("volumeSize", json!("lots")),
        ("resources", json!({ "limits": { "memory": "x" } })),
        ("workers", json!(0)),
    ];
    for (index, (field, value)) in rows.into_iter().enumerate() {
        let name = format!("bad{index}");
        let mut spec = minimal();
        spec["storageClassName"] = json!("standard");
        spec[field] = value;
        if let Err(refused) = case.serve(&name, spec).await {
            assert!(matches!(&refused, kube::Error::Api(s) if s.code == 422 && s.message.contains(field)), "{refused}");
            continue;
        }
        let told = case.until_reason(&name, "Stalled", "InvalidSpec").await?;
        assert!(holds(&told, "Ready", "False") && holds(&told, "Degraded", "True"));
        let message = condition(&told, "Stalled").map(|c| c.message.clone()).unwrap_or_default();
        assert!(message.contains(&format!("spec.{field}")), "{message}");
        assert!(case.all::<Deployment>().get_opt(&name).await?.is_none());
    }
    operator.stop().await
}

async fn bad_edit_and_back() -> Outcome {
    let case = Case::new("badedit").await?;
    let operator = case.operator();
    case.serve("a", minimal()).await?;
    case.until_ready("a").await?;
    let before = case.all::<Deployment>().get("a").await?.metadata.generation;
    let mut bad = minimal();
    bad["image"] = json!("");
    case.serve("a", bad).await?;
    case.until_reason("a", "Stalled", "InvalidSpec").await?;
    assert_eq!(case.all::<Deployment>().get("a").await?.metadata.generation, before);
    case.serve("a", minimal()).await?;
    let healed = case.until_ready("a").await?;
    assert!(condition(&healed, "Stalled").is_none());
    operator.stop().await
}

async fn rejected() -> Outcome {
    let case = Case::new("rejected").await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "q" }, "spec": { "hard": { "services": "0" } },
    });
    let quotas = case.all::<k8s_openapi::api::core::v1::ResourceQuota>();
    quotas.patch("q", &PatchParams::apply("tester"), &Patch::Apply(quota)).await?;
    // A quota counts only after its controller has looked at it once.
    case.until("q", "in force", |q: &k8s_openapi::api::core::v1::ResourceQuota| {
        q.status.as_ref().and_then(|s| s.hard.as_ref()).is_some_and(|h| h.contains_key("services"))
    })
    .await?;
    let operator = case.operator();
    case.serve("a", minimal()).await?;
    let told = case.until_reason("a", "Stalled", "Rejected").await?;
    let message = condition(&told, "Ready").map(|c| c.message.clone()).unwrap_or_default();
    assert!(message.contains("Service a") && message.contains("exceeded quota"), "{message}");
    // Everything else stands, and it heals by itself.
    case.until("a", "there", |d: &Deployment| d.spec.is_some()).await?;
    quotas.delete("q", &DeleteParams::default()).await?;
    case.until("a", "Ready", |ts: &TrackingServer| holds(ts, "Ready", "True")).await?;
    operator.stop().await
}
