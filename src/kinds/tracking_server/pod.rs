//! PURE: the pod of a `TrackingServer`: its variables, command and resources.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, ResourceRequirements};

use super::backend::{Backend, access_keys};
use super::{PORT, Server, labels};
use crate::api::common::given;
use crate::engine::workload::Blocked;
use crate::kinds::Platform;
use crate::parts::credentials::{Credentials, FINGERPRINT};
use crate::parts::deployment::{self, Replace};
use crate::parts::host_allow;

/// The volume's name in the pod: deployed pods have it, spelling included.
const DATA: (&str, &str) = ("trackingserver-sqllite-data", "/mlflow");
/// MLflow retries an unreachable database for 106 s and then says why; a probe must not end it before.
const START_SECONDS: i32 = 240;

impl Server<'_> {
    /// The variables. MLflow's own settings are variables too, because a flag that an older version does not know ends it.
    pub(super) fn environment(&self, credentials: &mut Credentials, platform: &Platform) -> Vec<EnvVar> {
        let mut env: Vec<EnvVar> = self.plain_variables(platform);
        for (name, source) in access_keys(self.spec) {
            env.push(credentials.variable(name, name, &source));
        }
        for name in ["BACKEND_URI", "MLFLOW_BACKEND_STORE_URI"] {
            match &self.backend {
                Backend::Default(place) => env.extend(deployment::variable(name, place)),
                Backend::Given(source) => env.push(credentials.variable(name, "BACKEND_URI", source)),
            }
        }
        deployment::overlaid(env, self.spec.env.as_deref().unwrap_or_default())
    }

    fn plain_variables(&self, platform: &Platform) -> Vec<EnvVar> {
        let Platform { cluster_domain, pod_networks, .. } = platform;
        let hosts =
            host_allow::hosts(&self.site.url, &self.site.name, &self.site.namespace, cluster_domain, pod_networks);
        let default_root = if self.site.volume.mounted { "/mlflow/artifacts" } else { "/tmp/artifacts" };
        let artifacts = given(self.spec.artifact_root.as_ref()).unwrap_or(default_root);
        let jobs = self.spec.job_execution.unwrap_or(false);
        [
            ("MLFLOW_TRACKING_URI", given(self.spec.url.as_ref()).unwrap_or_default()),
            ("MLFLOW_S3_ENDPOINT_URL", given(self.spec.s3_endpoint_url.as_ref()).unwrap_or_default()),
            ("ARTIFACT_ROOT", artifacts),
            // Clients upload through the server, so they need no credentials of the store.
            ("MLFLOW_ARTIFACTS_DESTINATION", artifacts),
            ("MLFLOW_SERVER_ALLOWED_HOSTS", &hosts),
            ("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", &self.site.url.origin()),
            // Behind a proxy: redirects and cookies follow the scheme that the client sees.
            ("MLFLOW_UVICORN_OPTS", "--proxy-headers --forwarded-allow-ips=*"),
            ("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", if jobs { "true" } else { "false" }),
            ("MLFLOW_DISABLE_TELEMETRY", "true"),
            ("HOME", "/tmp"),
        ]
        .into_iter()
        .filter_map(|(name, value)| deployment::variable(name, value))
        .collect()
    }

    /// The Deployment.
    pub(super) fn deployment(&self, env: Vec<EnvVar>, fingerprint: Option<String>) -> Result<Deployment, Blocked> {
        let spec = self.spec;
        let (volumes, mounts) = [deployment::scratch("tmp", "/tmp")]
            .into_iter()
            .chain(self.site.volume.mounted.then(|| deployment::claimed(DATA.0, &self.site.name, DATA.1)))
            .unzip();
        let container = Container {
            name: "mlflow".into(),
            image: Some(self.site.image.into()),
            image_pull_policy: Some("IfNotPresent".into()),
            command: spec.command.clone().filter(|c| !c.is_empty()).or_else(|| Some(self.command())),
            args: spec.args.clone(),
            ports: Some(vec![deployment::port(PORT.0, PORT.1)]),
            env: Some(env),
            resources: Some(self.resources()?),
            security_context: spec.security_context.clone().or_else(|| Some(deployment::restricted(true))),
            volume_mounts: Some(mounts),
            ..Container::default()
        };
        let single = self.is_single();
        let parts = deployment::Parts {
            name: self.site.name.clone(),
            replicas: if single { self.site.size.min(1) } else { self.site.size },
            selector: labels(&self.site.name),
            owner: self.site.uid.clone(),
            annotations: fingerprint.map(|print| (FINGERPRINT.to_owned(), print)).into_iter().collect(),
            replace: if single { Replace::OldFirst } else { Replace::NewFirst },
            progress_deadline_seconds: spec.progress_deadline_seconds.unwrap_or(600),
            pod: PodSpec {
                containers: vec![deployment::probed(container, PORT.0, "/health", START_SECONDS)],
                volumes: Some(volumes),
                security_context: spec.pod_security_context.clone().or_else(|| Some(deployment::restricted_pod())),
                image_pull_secrets: spec.image_pull_secrets.clone(),
                node_selector: spec.node_selector.clone(),
                tolerations: spec.tolerations.clone(),
                ..PodSpec::default()
            },
        };
        Ok(parts.build())
    }

    /// No shell. Host and port are given because the defaults are the loopback address and a variable's value.
    fn command(&self) -> Vec<String> {
        let workers = format!("--workers={}", self.spec.workers.unwrap_or(1));
        let (host, port) = ("--host=0.0.0.0".to_owned(), format!("--port={}", PORT.1));
        vec!["mlflow".into(), "server".into(), host, port, workers]
    }

    /// Measured with MLflow 3.17: 420 MiB, 180 MiB for every further worker, 1080 MiB for the job consumers.
    fn resources(&self) -> Result<ResourceRequirements, Blocked> {
        let workers = i64::from(self.spec.workers.unwrap_or(1));
        let mebibytes = 512 + 256 * (workers - 1) + if self.spec.job_execution == Some(true) { 1024 } else { 0 };
        let (request, limit) = (format!("{mebibytes}Mi"), format!("{}Mi", 2 * mebibytes));
        let requests = [("cpu", "100m"), ("memory", request.as_str())];
        deployment::resources(self.spec.resources.as_ref(), &requests, &[("memory", &limit)])
    }
}
