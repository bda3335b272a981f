//! What the cluster itself lacks: CRDs that come late, resources that this version cannot read. Control planes of their own.

use std::sync::OnceLock;

use aiscope_operator::api::TrackingServer;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use testbed::{Node, Testbed};

use tokio::io::AsyncBufReadExt;

use crate::kit::{Case, DEADLINE, Outcome, bare, condition, install_crds, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("the_operator_waits_for_crds_and_a_route_kind_that_come_late", late_crds),
        trial("the_program_says_what_it_waits_for_goes_on_and_ends_on_sigterm", the_program),
        trial("a_resource_that_cannot_be_decoded_is_told_and_all_others_go_on", undecodable),
    ]
}

async fn late_crds() -> Outcome {
    static OWN: OnceLock<Testbed> = OnceLock::new();
    let testbed = bare(Node::Simulated).await?;
    let testbed = OWN.get_or_init(|| testbed);
    let case = Case::on(testbed, "late").await?;
    let operator = case.operator();
    install_crds(testbed).await?;
    case.serve("a", minimal()).await?;
    let told = case.until_reason("a", "Stalled", "RouteKindMissing").await?;
    assert!(condition(&told, "Ready").is_some_and(|c| c.message.contains("ingressroutes.traefik.io")), "{told:#?}");
    // Everything else converges.
    case.kubectl(&["rollout", "status", "deployment/a", "--timeout=60s"]).await?;
    testbed.install_traefik_crds().await?;
    case.until_ready("a").await?;
    operator.stop().await
}

async fn undecodable() -> Outcome {
    static OWN: OnceLock<Testbed> = OnceLock::new();
    let testbed = bare(Node::Simulated).await?;
    let testbed = OWN.get_or_init(|| testbed);
    install_crds(testbed).await?;
    testbed.install_traefik_crds().await?;
    // A schema of another version, which lets through what this one does not understand.
    let crds: Api<CustomResourceDefinition> = Api::all(testbed.client("tester")?);
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema: Value = json!([
        { "op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec", "value": open },
    ]);
    let patch = Patch::<()>::Json(serde_json::from_value(schema)?);
    crds.patch("trackingservers.experiment.aiscope", &PatchParams::default(), &patch).await?;
    let case = Case::on(testbed, "undecodable").await?;
    let mut odd = minimal();
    odd["workers"] = json!("AKIASECRET");
    // The new schema takes a moment to be served.
    let ar = kube::api::ApiResource::erase::<TrackingServer>(&());
    let odd: kube::api::DynamicObject = serde_json::from_value(json!({
        "apiVersion": ar.api_version, "kind": ar.kind, "metadata": { "name": "odd" }, "spec": odd,
    }))?;
    let made = async {
        while let Err(error) = case.dynamic(&ar).create(&PostParams::default(), &odd).await {
            assert!(matches!(&error, kube::Error::Api(s) if s.code == 422), "{error}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, made).await?;
    case.serve("fine", minimal()).await?;
    let operator = case.operator();
    case.until_ready("fine").await?;
    let told = crate::kit::until(case.dynamic(&ar), "odd", "told", |o: Option<&kube::api::DynamicObject>| {
        o.is_some_and(|o| o.data["status"]["conditions"].to_string().contains("spec.workers"))
    })
    .await?;
    let status = told.map(|o| o.data["status"].to_string()).unwrap_or_default();
    assert!(status.contains("InvalidSpec") && !status.contains("AKIASECRET"), "{status}");
    operator.stop().await
}

/// The real program, as a pod would run it.
async fn the_program() -> Outcome {
    static OWN: OnceLock<Testbed> = OnceLock::new();
    let testbed = bare(Node::Simulated).await?;
    let testbed = OWN.get_or_init(|| testbed);
    testbed.install_traefik_crds().await?;
    let case = Case::on(testbed, "program").await?;
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_aiscope-operator"));
    command.env("KUBECONFIG", testbed.kubeconfig()).env("AISCOPE_INGRESS", "traefik");
    command.args(["run", "--namespace", "program", "--log-format", "json"]).stderr(std::process::Stdio::piped());
    let mut program = command.kill_on_drop(true).spawn()?;
    let mut log = tokio::io::BufReader::new(program.stderr.take().ok_or("no log")?).lines();
    let says = async |lines: &mut tokio::io::Lines<_>, what: &str| -> Outcome {
        while let Some(line) = lines.next_line().await? {
            let parsed: Value = serde_json::from_str(&line).map_err(|e| format!("{line}: {e}"))?;
            if parsed["message"].as_str().is_some_and(|m| m.contains(what)) {
                return Ok(());
            }
        }
        Err(format!("the log ended without: {what}").into())
    };
    tokio::time::timeout(DEADLINE, says(&mut log, "trackingservers.experiment.aiscope is not installed")).await??;
    install_crds(testbed).await?;
    case.serve("a", minimal()).await?;
    case.until_ready("a").await?;
    let pid = rustix::process::Pid::from_raw(i32::try_from(program.id().ok_or("it has ended")?)?).ok_or("no pid")?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    tokio::time::timeout(DEADLINE, says(&mut log, "stopped")).await??;
    assert!(tokio::time::timeout(DEADLINE, program.wait()).await??.success());
    Ok(())
}
