//! Pods that do not start.

use aiscope_operator::api::tracking_server::TrackingServer;
use libtest_mimic::Trial;
use serde_json::json;
use testbed::Image;

use super::{site, with_volume};
use crate::kit::{Outcome, condition, holds, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial("an_image_that_cannot_be_pulled_is_told_in_the_pods_own_words_and_heals", image_cannot_be_pulled)]
}

async fn image_cannot_be_pulled() -> Outcome {
    let site = site().await?;
    let case = site.case("image").await?;
    let operator = case.operator();
    let mut spec = with_volume(&site.http(&case, ""));
    // A name that is no registry's.
    spec["image"] = json!("registry.invalid/mlflow:none");
    spec["progressDeadlineSeconds"] = json!(15);
    case.serve("mlflow", spec.clone()).await?;
    let told = case.until("mlflow", "told why", |ts: &TrackingServer| {
        let words = ["ErrImagePull", "ImagePullBackOff"];
        condition(ts, "Reconciling").is_some_and(|c| words.iter().any(|word| c.message.contains(word)))
    });
    let told = told.await?;
    assert!(holds(&told, "Ready", "False") && holds(&told, "Degraded", "False"), "in time: {:?}", told.status);

    let given_up = case.until_reason("mlflow", "Stalled", "ProgressDeadlineExceeded").await?;
    assert!(holds(&given_up, "Degraded", "True") && holds(&given_up, "Ready", "False"), "{:?}", given_up.status);
    let message = condition(&given_up, "Stalled").map(|c| c.message.clone()).unwrap_or_default();
    assert!(message.contains("registry.invalid/mlflow:none"), "it does not name the image: {message}");

    spec["image"] = json!(Image::Mlflow.reference());
    spec["progressDeadlineSeconds"] = json!(600);
    case.serve("mlflow", spec).await?;
    let healed = case.until_ready("mlflow").await?;
    assert!(holds(&healed, "Degraded", "False"), "{:?}", healed.status);
    assert!(condition(&healed, "Stalled").is_none_or(|c| c.status == "False"), "{:?}", healed.status);
    operator.stop().await
}
