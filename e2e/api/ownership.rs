//! Nothing that is not the resource's own is ever written or deleted.

use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::kit::{Case, Outcome, certificate, condition, kind_of, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_foreign_object_of_a_childs_name_is_left_alone_and_told_and_healed_when_it_goes", foreign_objects),
        trial("a_foreign_object_that_carries_our_label_is_not_pruned", forged_label),
    ]
}

/// One foreign object for each kind of child.
fn foreigners() -> Vec<Value> {
    let pod =
        json!({ "metadata": { "labels": { "x": "y" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    vec![
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" }, "data": { "mine": "eA==" } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a-env" }, "data": { "mine": "eA==" } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a" },
            "spec": { "selector": { "matchLabels": { "x": "y" } }, "template": pod } }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" }, "spec": { "ports": [{ "port": 1 }] } }),
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": "a" }, "spec": { "podSelector": {} } }),
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "a" }, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } } }),
        json!({ "apiVersion": "traefik.io/v1alpha1", "kind": "Middleware", "metadata": { "name": "a" }, "spec": {} }),
        json!({ "apiVersion": "traefik.io/v1alpha1", "kind": "IngressRoute", "metadata": { "name": "a" }, "spec": {
            "routes": [{ "kind": "Rule", "match": "Host(\"other.example.com\")" }] } }),
    ]
}

async fn foreign_objects() -> Outcome {
    let (cert, key) = certificate("ml.example.com");
    let mut spec = minimal();
    for (field, value) in [
        ("cert", cert.as_str()),
        ("key", &key),
        ("aws_secret_key", "x"),
        ("volumeSize", "1Gi"),
        ("storageClassName", "standard"),
    ] {
        spec[field] = json!(value);
    }
    spec["networkPolicy"] = json!(true);
    // Each in a namespace of its own, once before the resource and once found by a restart.
    for (index, foreigner) in foreigners().into_iter().enumerate() {
        let case = Case::new(&format!("foreign{index}")).await?;
        let object = serde_json::from_value(foreigner)?;
        let (ar, name) = (kind_of(&object)?, object.name_any());
        case.dynamic(&ar).create(&PostParams::default(), &object).await?;
        case.serve("a", spec.clone()).await?;
        for _ in 0..2 {
            let operator = case.operator();
            let told = case.until_reason("a", "Stalled", "NotOwned").await?;
            let message = condition(&told, "Ready").map(|c| c.message.clone()).unwrap_or_default();
            assert!(message.contains(&ar.kind) && message.contains(&format!("/{name} ")), "{message}");
            operator.stop().await?;
        }
        let touched = |r: &testbed::Request| r.name == name && r.resource.ends_with(&ar.plural) && r.verb != "get";
        let requests = case.requests()?;
        assert!(!requests.iter().any(touched), "{} was written: {requests:#?}", ar.kind);
        let operator = case.operator();
        case.dynamic(&ar).delete(&name, &DeleteParams::default()).await?;
        case.until_ready("a").await?;
        operator.stop().await?;
    }
    Ok(())
}

async fn forged_label() -> Outcome {
    let case = Case::new("forged").await?;
    let operator = case.operator();
    let server = case.serve("a", minimal()).await?;
    case.until_ready("a").await?;
    let forged = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "precious", "labels": { "aiscope.io/owner-uid": server.uid() } }, "data": { "k": "eA==" },
    }))?;
    let ar = kind_of(&forged)?;
    case.dynamic(&ar).create(&PostParams::default(), &forged).await?;
    let mut spec = minimal();
    spec["env"] = json!([{ "name": "NEW", "value": "1" }]);
    case.serve("a", spec).await?;
    case.until_ready("a").await?;
    case.until_quiet(std::time::Duration::from_millis(500)).await?;
    assert!(case.dynamic(&ar).get_opt("precious").await?.is_some_and(|o| o.metadata.deletion_timestamp.is_none()));
    operator.stop().await
}
