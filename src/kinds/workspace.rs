//! PURE: what `JupyterNotebook` and `CodeServer` share: one pod with a home, and a Secret that lets its owner in.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, EnvVar, PersistentVolumeClaim, PodSpec, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::core::object::HasStatus;
use serde_json::Value;

use super::Platform;
use super::site::{Site, Wish};
use super::unused;
use crate::api::common::ServerStatus;
use crate::api::workspace::WorkspaceSpec;
use crate::engine::child::{ChildSet, Desired};
use crate::engine::idle::{Idle, Stop};
use crate::engine::reason::{IDLE, INVALID_SPEC};
use crate::engine::workload::{Blocked, Problem, Seen, Workload};
use crate::parts::credentials::{Credentials, FINGERPRINT, Source};
use crate::parts::deployment::{self, Replace};

/// Name of the port, of container and Service alike.
const PORT: &str = "http";
/// The first start may unpack a home.
const START_SECONDS: i32 = 240;

/// The program in the pod.
pub(super) struct Program {
    /// Name of the container.
    pub name: &'static str,
    /// Its port.
    pub port: i32,
    /// Where the volume is mounted.
    pub home: &'static str,
    /// The variable that it takes its secret from. The Secret's key, and the end of its name, is `key`.
    pub variable: &'static str,
    /// See `variable`.
    pub key: &'static str,
    /// No shell.
    pub command: Vec<String>,
    /// Further variables.
    pub env: Vec<EnvVar>,
    /// Answers when it is well.
    pub health: String,
    /// It expects to be at `/`.
    pub strip: bool,
    /// It is stopped, because nobody uses it.
    pub stop: Option<Stop>,
    /// Why it cannot start yet: then a Deployment is left as it is.
    pub waits: Option<Problem>,
}

pub(super) fn wish(spec: &WorkspaceSpec) -> Wish<'_> {
    Wish {
        image: spec.image.as_ref(),
        size: spec.size,
        url: spec.url.as_ref(),
        volume_size: spec.volume_size.as_ref(),
        storage_class_name: spec.storage_class_name.as_ref(),
        volume_reclaim_policy: spec.volume_reclaim_policy,
        cert: spec.cert.as_ref(),
        key: spec.key.as_ref(),
        network_policy: spec.network_policy,
    }
}

/// The labels that select the pod.
pub(super) fn labels<W: Workload>(owner: &W) -> BTreeMap<String, String> {
    let label = |(key, value): (&str, String)| (format!("app.kubernetes.io/{key}"), value);
    [("name", W::kind(&()).to_lowercase()), ("instance", owner.name_any())].into_iter().map(label).collect()
}

/// Understands the common fields. `program` is what the image is to contain.
pub(super) fn read<'a, W: Workload>(
    owner: &W,
    spec: &'a WorkspaceSpec,
    program: &str,
    seen: &Seen<'_>,
) -> Result<Site<'a>, Blocked> {
    let site = wish(spec).read(owner, program, seen)?;
    unused::timeout(spec)?;
    if site.size > 1 {
        return Err(Blocked::new(INVALID_SPEC, "spec.size must be 0 or 1: it is one person's, with one home"));
    }
    Ok(site)
}

/// How to find out whether it is used. `paths` and `read` are the program's own; `token` is the end of the name of the
/// Secret that lets the question in, and its key.
pub(super) fn idle<W: Workload + HasStatus<Status = ServerStatus>>(
    owner: &W,
    spec: &WorkspaceSpec,
    paths: Vec<String>,
    token: Option<&'static str>,
    read: fn(&[Value], Timestamp) -> Option<Timestamp>,
) -> Option<Idle> {
    let timeout = unused::timeout(spec).ok()??;
    if spec.size == Some(0) || unused::stop(owner).is_some() {
        return None;
    }
    let service = owner.name_any();
    let token = token.map(|key| (format!("{service}-{key}"), key));
    Some(Idle { timeout, service, port: PORT, paths, token, read })
}

/// All children.
pub(super) fn children<W: Workload>(
    owner: &W,
    (spec, site): (&WorkspaceSpec, &Site<'_>),
    mut program: Program,
    seen: &Seen<'_>,
    platform: &Platform,
) -> Result<ChildSet<Desired>, Blocked> {
    let (labels, port) = (labels(owner), (PORT, program.port));
    let (secret, strip, waits) = (format!("{}-{}", site.name, program.key), program.strip, program.waits.take());
    let stop = program.stop;
    if spec.env.iter().flatten().any(|variable| variable.name == program.variable) {
        let message = format!(
            "spec.env has {}, which comes from Secret {secret}; remove it, and if you want a value of your own put it there",
            program.variable
        );
        return Err(Blocked::new(INVALID_SPEC, message));
    }
    let set = ChildSet::new().with_minted(&secret, program.key);
    let mut set = site.add_base(set, &labels, port, platform);
    let deployment = deployment(spec, site, labels, program, &secret, seen)?;
    set = match waits.filter(|_| site.size > 0) {
        Some(problem) => {
            set.problems.push(problem);
            set.leaving::<Deployment>(&site.name)
        }
        None => set
            .with(&deployment)
            .needing::<Secret>(secret)
            .needing::<PersistentVolumeClaim>(&site.name)
            .needing::<NetworkPolicy>(&site.name),
    };
    set.settled = stop.filter(|_| site.size > 0).map(|stop| (IDLE, unused::words(owner, stop)));
    Ok(site.add_route(set, port, (strip, &[]), seen, platform))
}

fn deployment(
    spec: &WorkspaceSpec,
    site: &Site<'_>,
    selector: BTreeMap<String, String>,
    program: Program,
    secret: &str,
    seen: &Seen<'_>,
) -> Result<Deployment, Blocked> {
    // A secret that is made anew restarts the pod: the old one would go on letting people in.
    let mut credentials = Credentials::default();
    let source = Source::Reference { secret: secret.into(), key: program.key.into() };
    let mut env = vec![credentials.variable(program.variable, program.key, &source)];
    env.extend(deployment::variable("HOME", program.home));
    env.extend(program.env);
    let home = if site.volume.mounted {
        deployment::claimed("home", &site.name, program.home)
    } else {
        deployment::scratch("home", program.home)
    };
    let (volumes, mounts) = [deployment::scratch("tmp", "/tmp"), home].into_iter().unzip();
    let container = Container {
        name: program.name.into(),
        image: Some(site.image.into()),
        image_pull_policy: Some("IfNotPresent".into()),
        command: Some(program.command),
        working_dir: Some(program.home.into()),
        ports: Some(vec![deployment::port(PORT, program.port)]),
        env: Some(deployment::overlaid(env, spec.env.as_deref().unwrap_or_default())),
        resources: Some(deployment::resources(spec.resources.as_ref(), &[("cpu", "100m"), ("memory", "512Mi")], &[])?),
        security_context: spec.security_context.clone().or_else(|| Some(deployment::restricted(false))),
        volume_mounts: Some(mounts),
        ..Container::default()
    };
    let fingerprint = credentials.fingerprint(&site.uid, seen);
    let whole = deployment::Parts {
        name: site.name.clone(),
        replicas: if program.stop.is_some() { 0 } else { site.size },
        selector,
        owner: site.uid.clone(),
        annotations: fingerprint.map(|print| (FINGERPRINT.to_owned(), print)).into_iter().collect(),
        replace: Replace::OldFirst,
        progress_deadline_seconds: 600,
        pod: PodSpec {
            containers: vec![deployment::probed(container, PORT, &program.health, START_SECONDS)],
            volumes: Some(volumes),
            security_context: spec.pod_security_context.clone().or_else(|| Some(deployment::restricted_pod())),
            image_pull_secrets: spec.image_pull_secrets.clone(),
            node_selector: spec.node_selector.clone(),
            tolerations: spec.tolerations.clone(),
            ..PodSpec::default()
        },
    };
    Ok(whole.build())
}
