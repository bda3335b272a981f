//! On a real node: real MLflow, Traefik, stores and a browser.

mod browser;
mod client;
mod data;
mod failure;
mod http;
mod idle;
mod kinds;
mod routes;

use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::Value;
use testbed::{Certificate, Image, Node, Testbed, Traefik, TraefikOptions};
use tokio::sync::OnceCell;

use crate::kit::{Case, Error, bare, install_crds};

/// All of them.
pub fn trials() -> Vec<Trial> {
    [browser::trials(), data::trials(), failure::trials(), routes::trials(), kinds::trials(), idle::trials()]
        .into_iter()
        .flatten()
        .collect()
}

/// MLflow needs ten seconds of a processor to start, and several do at once.
const PATIENCE: Duration = Duration::from_mins(4);

/// The node that the tests share, and Traefik in front of it.
struct Site {
    testbed: Testbed,
    traefik: Traefik,
}

static SITE: OnceCell<Site> = OnceCell::const_new();

async fn site() -> Result<&'static Site, Error> {
    SITE.get_or_try_init(|| async {
        let testbed = bare(Node::Real).await?;
        testbed.load_image(Image::Mlflow).await?;
        let traefik =
            testbed.traefik(TraefikOptions { nginx: true, gateway: true, ..TraefikOptions::default() }).await?;
        install_crds(&testbed).await?;
        Ok(Site { testbed, traefik })
    })
    .await
}

impl Site {
    /// A namespace on the node; its name is also its host's.
    async fn case(&'static self, name: &str) -> Result<Case, Error> {
        Ok(Case { patience: PATIENCE, ..Case::on(&self.testbed, name).await? })
    }

    /// A host of a test's own.
    fn http(&self, case: &Case, path: &str) -> String {
        format!("http://{}:{}{path}", host(case), self.traefik.http().port())
    }

    fn https(&self, case: &Case, path: &str) -> String {
        format!("https://{}:{}{path}", host(case), self.traefik.https().port())
    }

    /// A certificate for that host.
    fn certificate(&self, case: &Case) -> Result<Certificate, Error> {
        Ok(Certificate::create(&self.testbed.dir().join(&case.namespace), &[host(case)])?)
    }
}

fn host(case: &Case) -> String {
    format!("{}.example.com", case.namespace)
}

/// A server with its data in a volume.
fn with_volume(url: &str) -> Value {
    serde_json::json!({
        "size": 1, "image": Image::Mlflow.reference(), "url": url, "volumeSize": "1Gi", "storageClassName": "standard",
        "backend_uri": "sqlite:////mlflow/mlflow.db", "artifact_root": "/mlflow/artifacts",
    })
}
