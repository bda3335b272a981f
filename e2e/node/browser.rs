//! What a person sees at the URL.

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use libtest_mimic::Trial;
use serde_json::json;

use super::client::{LOG, READ, browse, mlflow, picture};
use super::{site, with_volume};
use crate::kit::{Outcome, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial("a_browser_sees_mlflow_at_its_url_with_and_without_the_trailing_slash", seen_in_a_browser)]
}

async fn seen_in_a_browser() -> Outcome {
    let site = site().await?;
    let case = site.case("browser").await?;
    let restricted = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces: Api<Namespace> = Api::all(case.client.clone());
    namespaces.patch("browser", &PatchParams::default(), &Patch::Merge(&restricted)).await?;
    let operator = case.operator();
    let url = site.https(&case, "/platform");
    let made = site.certificate(&case)?;
    let mut spec = with_volume(&url);
    spec["cert"] = json!(std::fs::read_to_string(made.certificate)?);
    spec["key"] = json!(std::fs::read_to_string(made.key)?);
    case.serve("mlflow", spec).await?;
    case.until_ready("mlflow").await?;

    let volume = case.all::<PersistentVolumeClaim>().get("mlflow").await?;
    assert_eq!(volume.status.and_then(|s| s.phase).as_deref(), Some("Bound"));
    assert_eq!(
        case.all::<Pod>().list(&ListParams::default()).await?.items.len(),
        1,
        "restricted Pod Security admits it"
    );

    for url in [url.clone(), format!("{url}/")] {
        let page = browse(&case, &url).await?;
        // The second is read from MLflow's API: scripts and calls take the same route as the page.
        for text in ["Welcome to MLflow", "Recent Experiments", "Default"] {
            assert!(page.contains(text), "{url} shows no {text:?}: {page:.2000}");
        }
    }
    picture(&case, &url, "artifacts/mlflow-home.png".as_ref()).await?;
    let run = mlflow(site, &case, &url, LOG, &[]).await?;
    assert_eq!(mlflow(site, &case, &url, READ, &[&run]).await?, "3 0.25 hello");
    operator.stop().await
}
