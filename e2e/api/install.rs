//! The shipped manifests: rendered as committed, installed by the real kubectl, and enough for the operator.

use std::path::Path;
use std::sync::OnceLock;

use libtest_mimic::Trial;
use testbed::{Node, Testbed};
use tokio::process::Command;

use crate::kit::{Case, Error, Outcome, bare, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("under_the_shipped_rights_a_resource_becomes_ready", all_namespaces),
        trial("some_namespaces_need_roles_alone", some_namespaces),
    ]
}

fn manifests(part: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests").join(part).display().to_string()
}

async fn all_namespaces() -> Outcome {
    static OWN: OnceLock<Testbed> = OnceLock::new();
    let testbed = bare(Node::Simulated).await?;
    let case = Case::on(OWN.get_or_init(|| testbed), "installed").await?;
    case.testbed.install_traefik_crds().await?;
    let rendered = case.kubectl(&["kustomize", &manifests("overlays/default")]).await?;
    let committed = std::fs::read_to_string(manifests("install.yaml"))?;
    let (_, committed) = committed.split_once('\n').ok_or("install.yaml is empty")?;
    assert!(committed == rendered, "manifests/install.yaml is stale; its first line says how it is made");
    case.kubectl(&["--namespace=", "apply", "--server-side", "--filename", &manifests("install.yaml")]).await?;
    stands(&case, &[]).await
}

async fn some_namespaces() -> Outcome {
    static OWN: OnceLock<Testbed> = OnceLock::new();
    let testbed = bare(Node::Simulated).await?;
    let case = Case::on(OWN.get_or_init(|| testbed), "team-a").await?;
    case.testbed.install_traefik_crds().await?;
    case.kubectl(&["--namespace=", "apply", "--server-side", "--kustomize", &manifests("overlays/namespaced")]).await?;
    let bindings = case.kubectl(&["get", "clusterrolebindings", "--output=name"]).await?;
    assert!(!bindings.contains("aiscope"), "{bindings}");
    stands(&case, &["--namespace", "team-a"]).await
}

/// Runs the real program with a token of the shipped service account, until a resource of the test's namespace is Ready,
/// its volume has come and gone, and the route too.
async fn stands(case: &Case, arguments: &[&str]) -> Outcome {
    let crd = "crd/trackingservers.experiment.aiscope";
    case.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", crd]).await?;
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    as_service_account(case, &kubeconfig).await?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_aiscope-operator"));
    command.env("KUBECONFIG", &kubeconfig).arg("run").args(arguments).kill_on_drop(true);
    let mut program = command.spawn()?;
    let mut spec = minimal();
    spec["volumeSize"] = "1Gi".into();
    spec["storageClassName"] = "standard".into();
    spec["aws_secret_key"] = "secret".into();
    case.serve("a", spec).await?;
    case.until_ready("a").await?;
    // Without a volume the claim is pruned.
    case.serve("a", minimal()).await?;
    case.until_gone::<k8s_openapi::api::core::v1::PersistentVolumeClaim>("a").await?;
    case.until_ready("a").await?;
    Ok(program.kill().await?)
}

/// Writes a kubeconfig that has no other identity than the shipped service account.
async fn as_service_account(case: &Case, file: &Path) -> Result<(), Error> {
    let system = ["--namespace", "aiscope-system", "create", "token", "aiscope-operator"];
    let token = case.kubectl(&system).await?;
    let mut config = kube::config::Kubeconfig::read_from(case.testbed.kubeconfig())?;
    for user in &mut config.auth_infos {
        let token = Some(token.trim().to_owned().into());
        user.auth_info = Some(kube::config::AuthInfo { token, ..Default::default() });
    }
    std::fs::write(file, serde_json::to_string(&config)?)?;
    Ok(())
}
