//! The engine as a library: the example is a complete operator of its own.

use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch};
use libtest_mimic::Trial;
use serde_json::json;
use tokio::process::Command;

use crate::kit::{Case, DEADLINE, Error, Outcome, gitops, trial, until};

pub fn trials() -> Vec<Trial> {
    vec![trial("the_guestbook_example_is_a_complete_operator", guestbook)]
}

/// The example by way of cargo, which builds it first: `cargo test --test e2e` alone does not.
fn example() -> Result<Command, Error> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(3).ok_or("no target directory")?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(["run", "--quiet", "--example", "guestbook", "--target-dir"]).arg(target);
    if test.ancestors().nth(2) == Some(&target.join("release")) {
        command.arg("--release");
    }
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR"))).arg("--").kill_on_drop(true);
    Ok(command)
}

async fn guestbook() -> Outcome {
    let case = Case::new("guestbook").await?;
    let printed = example()?.arg("crd").output().await?;
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let crd = tempfile::NamedTempFile::new()?;
    std::fs::write(crd.path(), printed.stdout)?;
    case.kubectl(&["apply", "--server-side", "-f", &crd.path().display().to_string()]).await?;
    case.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd/guestbooks.webapp.my.domain"]).await?;
    // On unix cargo becomes the program, so that a signal to the one reaches the other.
    let mut running = example()?.env("KUBECONFIG", case.testbed.kubeconfig()).spawn()?;

    let ar = ApiResource::from_gvk(&GroupVersionKind::gvk("webapp.my.domain", "v1", "Guestbook"));
    let guestbooks = case.dynamic(&ar);
    let write = async |spec| {
        let body = json!({ "apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "metadata": { "name": "a" }, "spec": spec });
        guestbooks.patch("a", &gitops(), &Patch::Apply(&body)).await
    };
    write(json!({ "foo": "" })).await?;
    let told = |text: &'static str| {
        move |book: Option<&DynamicObject>| {
            book.is_some_and(|b| b.data["status"]["conditions"].to_string().contains(text))
        }
    };
    until(case.dynamic(&ar), "a", "told", told("spec.foo is missing")).await?;
    for words in ["welcome", "come again"] {
        write(json!({ "foo": words })).await?;
        let says = |c: &ConfigMap| c.data.as_ref().is_some_and(|data| data["foo"] == words);
        case.until("a", "written", says).await?;
        case.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "guestbook/a"]).await?;
        case.all::<ConfigMap>().delete("a", &DeleteParams::default()).await?;
        case.until("a", "written again", says).await?;
    }
    guestbooks.delete("a", &DeleteParams::default()).await?;
    case.until_gone::<ConfigMap>("a").await?;
    let id = running.id().ok_or("it ended by itself")?;
    Command::new("kill").arg(id.to_string()).status().await?;
    let ended = tokio::time::timeout(DEADLINE, running.wait()).await??;
    assert!(ended.success(), "{ended}");
    Ok(())
}
