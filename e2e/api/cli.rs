//! The command line against a real API server.

use aiscope_operator::api::{EasyService, TrackingServer};
use libtest_mimic::Trial;
use serde_json::json;

use crate::kit::{Case, Error, Outcome, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial("status_shows_every_resource_and_the_next_step_and_ends_with_0_when_all_are_ready", status)]
}

/// What `status` prints for the namespace, and whether it ended with 0.
async fn told(case: &Case, program: &std::path::Path, more: &[&str]) -> Result<(String, bool), Error> {
    let mut command = tokio::process::Command::new(program);
    command.args(["status", "--namespace", &case.namespace, "--kubeconfig"]).arg(case.testbed.kubeconfig()).args(more);
    let output = command.output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.is_empty() {
        Ok((String::from_utf8(output.stdout)?, output.status.success()))
    } else {
        Err(errors.into())
    }
}

async fn status() -> Outcome {
    let case = Case::new("status").await?;
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_aiscope-operator"));
    assert_eq!(told(&case, program, &[]).await?, ("no resources found\n".into(), true));
    // Nobody has looked at it yet.
    case.apply::<EasyService>("web", json!({ "size": 1, "image": "i", "ports": [{ "port": 80 }] })).await?;
    let (text, ready) = told(&case, program, &[]).await?;
    assert!(!ready && text.contains("next: see that the operator runs"), "{text}");
    let operator = case.operator();
    case.serve("a", minimal()).await?;
    case.until_stands::<TrackingServer>("a").await?;
    case.until_stands::<EasyService>("web").await?;
    assert!(told(&case, program, &[]).await?.1);
    case.serve("b", json!({ "image": "", "url": "http://b.example.com/", "aws_secret_key": "hunter2" })).await?;
    case.until_reason("b", "Stalled", "InvalidSpec").await?;
    let (text, ready) = told(&case, program, &[]).await?;
    let text = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
    let wanted = "\
NAMESPACE KIND NAME READY REASON AGE URL
status EasyService web True Ready AGE http://web.status.svc/
status TrackingServer a True Ready AGE http://ml.example.com/x/
status TrackingServer b False InvalidSpec AGE

TrackingServer status/b
InvalidSpec: spec.image is missing; name a container image with MLflow
next: correct the field that the message names";
    let ages = regex::Regex::new(r"(?m) (?:\d+s|\d+m(?:\d+s)?)( |$)")?;
    assert_eq!(ages.replace_all(&text.join("\n"), " AGE$1"), wanted);
    assert!(!ready);
    // As a plugin of kubectl, and for programs.
    let dir = tempfile::tempdir()?;
    let plugin = dir.path().join("kubectl-aiscope");
    std::os::unix::fs::symlink(program, &plugin)?;
    let (text, _) = told(&case, &plugin, &["-o", "json"]).await?;
    let list: serde_json::Value = serde_json::from_str(&text)?;
    assert_eq!((&list[2]["name"], &list[2]["reason"]), (&json!("b"), &json!("InvalidSpec")));
    assert!(!text.contains("hunter2"), "{text}");
    operator.stop().await
}
