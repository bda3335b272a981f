//! SHELL: `status`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde::Serialize;
use serde_json::Value;

use super::remedy::remedy;
use super::table::{Table, age};
use crate::api::{CodeServer, EasyService, JupyterNotebook, TrackingServer};
use crate::engine::status::condition;
use crate::render;

/// Which cluster, as for kubectl.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// The kubeconfig; else KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Its context; else the current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Arguments of `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The namespace; else the context's.
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// How to print.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table, then the next step for each resource that needs one.
    Table,
    /// The same with replicas and image.
    Wide,
    /// A list of objects.
    Json,
    /// The same, a document each.
    Yaml,
}

/// One resource, as it is told.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Line {
    kind: String,
    namespace: String,
    name: String,
    /// `True`, `False`, or `Unknown`: the operator has not looked at this generation.
    ready: String,
    reason: String,
    /// What is wrong; empty when nothing is.
    message: String,
    next: Option<&'static str>,
    url: String,
    replicas: String,
    image: String,
    created: Option<Timestamp>,
}

impl ClusterArgs {
    /// The configuration that they name.
    pub(super) async fn config(&self) -> Result<Config, String> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| format!("{}: {error}", path.display()))?;
                Config::from_custom_kubeconfig(file, &options).await
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options).await,
            None => return Config::infer().await.map_err(|error| format!("no cluster: {error}")),
        };
        config.map_err(|error| format!("no cluster: {error}"))
    }
}

/// Prints how all resources are. `false` when one of them is not ready.
pub(super) fn print(args: &StatusArgs) -> Result<bool, String> {
    // As in `run`: chosen before the first connection.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let lines = runtime.block_on(collect(args))?;
    let text = match args.output {
        Output::Json => format!("{:#}\n", serde_json::to_value(&lines).map_err(|error| error.to_string())?),
        Output::Yaml => render::yaml(&lines)?,
        Output::Table | Output::Wide if lines.is_empty() => "no resources found\n".to_owned(),
        Output::Table | Output::Wide => listed(&lines, args.output == Output::Wide, now()),
    };
    super::print(&text)?;
    Ok(lines.iter().all(|line| line.ready == "True"))
}

async fn collect(args: &StatusArgs) -> Result<Vec<Line>, String> {
    let config = args.cluster.config().await?;
    let (server, own) = (config.cluster_url.to_string(), config.default_namespace.clone());
    // With kube's own retries: a server that is starting up asks to come again in a second.
    let client = Client::try_from(config).map_err(|error| format!("{server}: {error}"))?;
    let namespace = (!args.all_namespaces).then(|| args.namespace.clone().unwrap_or(own));
    let kinds = [
        ApiResource::erase::<TrackingServer>(&()),
        ApiResource::erase::<JupyterNotebook>(&()),
        ApiResource::erase::<CodeServer>(&()),
        ApiResource::erase::<EasyService>(&()),
    ];
    let mut lines = Vec::new();
    for ar in &kinds {
        lines.extend(of_kind(&client, ar, namespace.as_deref()).await.map_err(|error| format!("{server}: {error}"))?);
    }
    lines.sort_by(|a, b| (&a.namespace, &a.kind, &a.name).cmp(&(&b.namespace, &b.kind, &b.name)));
    Ok(lines)
}

async fn of_kind(client: &Client, ar: &ApiResource, namespace: Option<&str>) -> Result<Vec<Line>, String> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, ar),
        None => Api::all_with(client.clone(), ar),
    };
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list.items.iter().map(|object| line(&ar.kind, object)).collect()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Err(format!(
            "the CRD of {} is not installed: aiscope-operator crds | kubectl apply --server-side -f -",
            ar.kind
        )),
        Err(error) => Err(format!("{}: {error}", ar.plural)),
    }
}

/// Reads one resource of the kind.
fn line(kind: &str, object: &DynamicObject) -> Line {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let all = || status["conditions"].as_array().into_iter().flatten();
    let find = |type_: &str| all().find(|c| c["type"] == type_);
    let holds = |type_: &str| find(type_).filter(|c| c["status"] == "True");
    let seen = find(condition::READY)
        .filter(|c| c["observedGeneration"].as_i64().is_none_or(|seen| Some(seen) >= object.metadata.generation));
    let (ready, reason) = seen.map_or(("Unknown".into(), "-".into()), |c| (text(&c["status"]), text(&c["reason"])));
    let trouble = match seen {
        Some(c) if c["status"] != "True" => Some(c),
        Some(_) => holds(condition::DEGRADED).or_else(|| holds(condition::CERTIFICATE_EXPIRING)),
        None => None,
    };
    let next = match (seen, trouble) {
        (None, _) => Some("see that the operator runs: it has not looked at this generation yet"),
        (_, Some(c)) => remedy(c["reason"].as_str().unwrap_or_default()),
        _ => remedy(&reason),
    };
    let words = trouble.map(|c| format!("{}: {}", text(&c["reason"]), text(&c["message"]))).unwrap_or_default();
    let count = |value: &Value| value.as_i64().map_or("-".to_owned(), |n| n.to_string());
    Line {
        kind: kind.into(),
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        ready,
        reason,
        message: words,
        next,
        url: text(&status["url"]),
        replicas: format!("{}/{}", count(&status["readyReplicas"]), count(&status["replicas"])),
        image: text(&spec["image"]),
        created: object.creation_timestamp().map(|t| t.0),
    }
}

/// The table, and below it what to do.
fn listed(lines: &[Line], wide: bool, now: Timestamp) -> String {
    let mut headings = vec!["NAMESPACE", "KIND", "NAME", "READY", "REASON", "AGE", "URL"];
    headings.extend(wide.then_some(["PODS", "IMAGE"]).into_iter().flatten());
    let mut table = Table::new(&headings);
    for line in lines {
        let age = line.created.map_or("-".to_owned(), |at| age(now.as_second() - at.as_second()));
        let Line { namespace, kind, name, ready, reason, url, .. } = line.clone();
        let more = wide.then(|| [line.replicas.clone(), line.image.clone()]).into_iter().flatten();
        table.push([namespace, kind, name, ready, reason, age, url].into_iter().chain(more));
    }
    let steps = lines.iter().filter_map(|line| {
        let words = if line.message.is_empty() { String::new() } else { format!("\n  {}", line.message) };
        Some(format!("\n{} {}/{}{words}\n  next: {}\n", line.kind, line.namespace, line.name, line.next?))
    });
    format!("{table}{}", steps.collect::<String>())
}

#[expect(clippy::disallowed_methods, reason = "the edge: an age is up to now")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(generation: i64, conditions: &Value) -> Line {
        let object = json!({
            "apiVersion": "experiment.aiscope/v1alpha2", "kind": "TrackingServer",
            "metadata": { "name": "a", "namespace": "t", "generation": generation, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "image": "i", "aws_secret_key": "hunter2" },
            "status": { "conditions": conditions, "url": "http://h/", "replicas": 1, "readyReplicas": 1 },
        });
        line("TrackingServer", &serde_json::from_value(object).unwrap())
    }

    fn told(type_: &str, status: &str, reason: &str) -> Value {
        json!({ "type": type_, "status": status, "reason": reason, "message": "why", "observedGeneration": 1 })
    }

    #[test]
    fn the_table_shows_every_resource_and_the_next_step_for_those_that_need_one() {
        let fine = read(1, &json!([told("Ready", "True", "Ready"), told("Degraded", "False", "AsExpected")]));
        let stuck =
            read(1, &json!([told("Ready", "False", "RouteConflict"), told("Degraded", "True", "RouteConflict")]));
        let ending = read(1, &json!([told("Ready", "True", "Ready"), told("Degraded", "True", "CertificateExpired")]));
        let now = "2026-01-01T00:04:10Z".parse().unwrap();
        let wanted = "\
NAMESPACE   KIND             NAME   READY   REASON          AGE     URL
t           TrackingServer   a      True    Ready           4m10s   http://h/
t           TrackingServer   a      False   RouteConflict   4m10s   http://h/
t           TrackingServer   a      True    Ready           4m10s   http://h/

TrackingServer t/a
  RouteConflict: why
  next: change spec.url, or have the other's changed

TrackingServer t/a
  CertificateExpired: why
  next: renew the certificate
";
        assert_eq!(listed(&[fine.clone(), stuck, ending], false, now), wanted);
        let wide = listed(&[fine], true, now);
        assert!(wide.ends_with("http://h/   1/1    i\n") && !wide.contains("hunter2"), "{wide}");
    }

    #[test]
    fn a_generation_that_the_operator_has_not_looked_at_is_neither_ready_nor_not() {
        for (generation, conditions) in [(2, json!([told("Ready", "True", "Ready")])), (1, Value::Null)] {
            let line = read(generation, &conditions);
            assert_eq!((line.ready.as_str(), line.next.is_some()), ("Unknown", true), "{conditions}");
        }
    }
}
