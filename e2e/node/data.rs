//! Where runs and files end up, and that they stay.

use std::path::{Path, PathBuf};

use aiscope_operator::api::tracking_server::TrackingServer;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use testbed::Image;

use super::client::{LOG, READ, mlflow};
use super::{site, with_volume};
use crate::kit::{Outcome, gitops, holds, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("runs_in_a_volume_outlive_their_pod", runs_outlive_their_pod),
        trial("a_run_has_its_row_in_postgresql_and_its_file_in_s3_once_the_credential_is_right", row_and_file),
    ]
}

async fn runs_outlive_their_pod() -> Outcome {
    let site = site().await?;
    let case = site.case("volume").await?;
    let operator = case.operator();
    let url = site.http(&case, "");
    case.serve("mlflow", with_volume(&url)).await?;
    case.until_ready("mlflow").await?;
    let run = mlflow(site, &case, &url, LOG, &[]).await?;

    case.all::<Pod>().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    case.until("mlflow", "not Ready while its pod is gone", |ts: &TrackingServer| holds(ts, "Ready", "False")).await?;
    let back = case.until_ready("mlflow").await?;
    assert!(holds(&back, "Degraded", "False"), "a replaced pod is no trouble: {:?}", back.status);
    assert_eq!(mlflow(site, &case, &url, READ, &[&run]).await?, "3 0.25 hello");
    operator.stop().await
}

/// Counts a run's rows: the client's Python has PostgreSQL's driver too.
const ROWS: &str = r#"
import psycopg2, sys
cursor = psycopg2.connect(sys.argv[1]).cursor()
cursor.execute("select count(*) from runs join metrics using (run_uuid) where run_uuid = %s", (sys.argv[2],))
print(cursor.fetchone()[0])
"#;

async fn row_and_file() -> Outcome {
    let site = site().await?;
    let case = site.case("stores").await?;
    let s3 = site.testbed.s3(&["mlflow"]).await?;
    let postgres = site.testbed.postgres().await?;
    let operator = case.operator();
    let url = site.http(&case, "/team");
    let credential = |key: &str| -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "stores" },
            "stringData": {
                "AWS_ACCESS_KEY_ID": s3.access_key(), "AWS_SECRET_ACCESS_KEY": key, "BACKEND_URI": postgres.uri(),
            },
        })
    };
    let secrets = case.all::<Secret>();
    secrets.patch("stores", &gitops(), &Patch::Apply(credential("mistyped"))).await?;
    let spec = json!({
        "size": 1, "image": Image::Mlflow.reference(), "url": url, "credentialsSecretRef": { "name": "stores" },
        "s3_endpoint_url": s3.endpoint(), "artifact_root": "s3://mlflow/team",
    });
    case.serve("mlflow", spec).await?;
    case.until_ready("mlflow").await?;
    let refused = mlflow(site, &case, &url, LOG, &[]).await;
    assert!(refused.is_err(), "S3 took a file with a wrong key");

    let before = case.all::<Deployment>().get("mlflow").await?.metadata.generation;
    secrets.patch("stores", &gitops(), &Patch::Apply(credential(s3.secret_key()))).await?;
    case.until("mlflow", "rolled by the new credential", |d: &Deployment| {
        let status = d.status.clone().unwrap_or_default();
        d.metadata.generation > before
            && status.observed_generation == d.metadata.generation
            && (status.updated_replicas, status.replicas, status.available_replicas) == (Some(1), Some(1), Some(1))
    })
    .await?;
    case.until_ready("mlflow").await?;
    let run = mlflow(site, &case, &url, LOG, &[]).await?;
    assert_eq!(mlflow(site, &case, &url, READ, &[&run]).await?, "3 0.25 hello");

    let database = postgres.uri().replace("+psycopg2", "");
    assert_eq!(mlflow(site, &case, &url, ROWS, &[&database, &run]).await?, "1", "the run's row is not in PostgreSQL");
    let file = files(&s3.bucket("mlflow"))?.into_iter().find(|f| f.ends_with(format!("{run}/artifacts/note.txt")));
    let file = file.ok_or("the run's file is not in the bucket")?;
    assert_eq!(std::fs::read_to_string(file)?, "hello");
    operator.stop().await
}

fn files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    Ok(found)
}
