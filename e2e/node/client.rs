//! What users have: MLflow's own client and a browser.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use tokio::process::Command;

use super::{Site, host};
use crate::kit::{Case, Error, Outcome};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Logs a run with a parameter, a metric and a file; prints its id.
pub const LOG: &str = r#"
import mlflow, sys
with mlflow.start_run() as run:
    mlflow.log_param("depth", 3)
    mlflow.log_metric("loss", 0.25)
    mlflow.log_text("hello", "note.txt")
print(run.info.run_id)
"#;

/// Reads that run back; prints what it holds.
pub const READ: &str = r#"
import mlflow, sys
run = mlflow.get_run(sys.argv[1])
note = mlflow.artifacts.load_text(run.info.artifact_uri + "/note.txt")
print(run.data.params["depth"], run.data.metrics["loss"], note)
"#;

/// Runs MLflow's own client against a server; returns the last line it printed.
pub async fn mlflow(site: &Site, case: &Case, url: &str, code: &str, arguments: &[&str]) -> Result<String, Error> {
    let mut client = Command::from(site.testbed.mlflow_client(&[(&host(case), LOOPBACK)]).await?);
    client.args(["-c", code]).args(arguments).env("MLFLOW_TRACKING_URI", url).env("MLFLOW_DISABLE_TELEMETRY", "true");
    client.env("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2").kill_on_drop(true);
    // The client sees nothing of this machine but /tmp.
    let authority = tempfile::NamedTempFile::new_in("/tmp")?;
    if url.starts_with("https:") {
        std::fs::copy(site.testbed.dir().join(&case.namespace).join("ca.crt"), authority.path())?;
        client.env("REQUESTS_CA_BUNDLE", authority.path());
    }
    let output = client.output().await?;
    if !output.status.success() {
        return Err(format!("MLflow's client at {url}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let printed = String::from_utf8(output.stdout)?;
    Ok(printed.lines().last().unwrap_or_default().to_owned())
}

/// Opens a page in a headless browser and returns what its scripts made of it.
pub async fn browse(case: &Case, url: &str) -> Result<String, Error> {
    chromium(case, &["--dump-dom", url]).await
}

/// Keeps a picture of a page.
pub async fn picture(case: &Case, url: &str, file: &Path) -> Outcome {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let screenshot = format!("--screenshot={}", std::path::absolute(file)?.display());
    chromium(case, &["--window-size=1280,900", &screenshot, url]).await?;
    if std::fs::metadata(file)?.len() < 10_000 {
        return Err(format!("{} shows next to nothing", file.display()).into());
    }
    Ok(())
}

async fn chromium(case: &Case, arguments: &[&str]) -> Result<String, Error> {
    testbed::ensure_packages(&["chromium"]).await?;
    let profile = tempfile::tempdir()?;
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    chromium.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    chromium.arg(format!("--user-data-dir={}", profile.path().display()));
    chromium.arg(format!("--host-resolver-rules=MAP {} {LOOPBACK}", host(case)));
    // Time stands still while the page loads something, so this is how long its scripts may think.
    chromium.args(["--ignore-certificate-errors", "--virtual-time-budget=20000"]).args(arguments);
    let output = tokio::time::timeout(case.patience, chromium.kill_on_drop(true).output()).await??;
    if !output.status.success() {
        return Err(format!("chromium {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
