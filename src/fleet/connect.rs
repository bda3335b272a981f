//! SHELL: the connection to a member, and the proof that the controllers can work over it.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{conditions, wait};
use kube::{Api, Client, Config, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::decide::{Check, Probe};
use super::rights::{self, Right};
use crate::engine::child::MANAGER;
use crate::engine::meters::Meters;
use crate::engine::reason;
use crate::engine::workload::{Blocked, Problem, Weight};
use crate::ops::client;

/// How long all questions together may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long one may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How many are asked at once.
const AT_ONCE: usize = 8;

/// A client that sends nothing any more once `gate` is cancelled.
///
/// # Errors
/// When the kubeconfig, though vetted, cannot be used; nothing of it is in the message.
pub async fn connect(kubeconfig: Kubeconfig, meters: &Arc<Meters>, gate: CancellationToken) -> Result<Client, Blocked> {
    let bad = || Blocked::new(reason::KUBECONFIG_INVALID, "the kubeconfig cannot be used: make it anew");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(|_| bad())?;
    client::metered_until(config, meters, gate).map_err(|_| bad())
}

/// What has to be proven.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'a> {
    /// The kinds looked after.
    pub resources: &'a [ApiResource],
    /// The kinds of their children.
    pub children: &'a [ApiResource],
    /// CRDs are installed and updated.
    pub install: bool,
}

/// Asks a member all questions.
pub async fn probe(client: &Client, needs: Needs<'_>) -> Probe {
    let mut probe = Probe::default();
    if tokio::time::timeout(DEADLINE, ask(client, needs, &mut probe)).await.is_err() {
        probe.reachable = unreachable("it does not answer in time");
    }
    probe
}

async fn ask(client: &Client, needs: Needs<'_>, probe: &mut Probe) {
    match within(client.apiserver_version()).await {
        Ok(version) => probe.version = Some(version.git_version),
        Err(failed) => return failed.enter(probe),
    }
    probe.reachable = Check::Holds;
    match missing(client, rights::needed(needs.resources, needs.children, needs.install)).await {
        Err(failed) => return failed.enter(probe),
        Ok(missing) if !missing.is_empty() => {
            let message =
                format!("the credentials lack: {}; grant it to the user of the kubeconfig", rights::list(&missing));
            probe.authorized = fails(Weight::Stalls, reason::RIGHTS_MISSING, message);
            return;
        }
        Ok(_) => probe.authorized = Check::Holds,
    }
    match within(Api::<Namespace>::all(client.clone()).get("kube-system")).await {
        Ok(namespace) => probe.cluster = namespace.uid(),
        Err(failed) => return failed.enter(probe),
    }
    match crds(client, needs).await {
        Err(failed) => failed.enter(probe),
        Ok(missing) if missing.is_empty() => probe.crds = Check::Holds,
        Ok(missing) => {
            let names = missing.join(", ");
            let message = format!(
                "not installed in this version: {names}; run the operator with --install-crds, or `aiscope-operator crds | kubectl apply --server-side -f -` there"
            );
            probe.crds = fails(Weight::Stalls, reason::CRDS_MISSING, message);
        }
    }
}

/// The rights that the credentials lack.
async fn missing(client: &Client, needed: Vec<Right>) -> Result<Vec<Right>, Failed> {
    let all = Right { group: "*".into(), resource: "*".into(), subresource: "", verb: "*" };
    // An administrator may do all; one question instead of eighty.
    if allowed(client, &all).await? {
        return Ok(Vec::new());
    }
    let asked = futures::stream::iter(needed).map(async |right| Ok((allowed(client, &right).await?, right)));
    let answers: Vec<(bool, Right)> = asked.buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().filter(|(allowed, _)| !allowed).map(|(_, right)| right).collect())
}

async fn allowed(client: &Client, right: &Right) -> Result<bool, Failed> {
    let attributes = ResourceAttributes {
        group: Some(right.group.clone()),
        resource: Some(right.resource.clone()),
        subresource: Some(right.subresource.into()).filter(|s: &String| !s.is_empty()),
        verb: Some(right.verb.into()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = within(api.create(&PostParams::default(), &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Names the CRDs that are not there in this version; installs them first when that is asked for.
async fn crds(client: &Client, needs: Needs<'_>) -> Result<Vec<String>, Failed> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut missing = Vec::new();
    let wanted = crate::api::workloads();
    for crd in wanted.iter().filter(|crd| needs.resources.iter().any(|ar| ar.kind == crd.spec.names.kind)) {
        let name = crd.name_any();
        let live = within(api.get_opt(&name)).await?;
        if live.is_some_and(|live| covers(&live, crd)) {
            continue;
        }
        if !needs.install {
            missing.push(name);
            continue;
        }
        within(api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(crd))).await?;
        let established = wait::await_condition(api.clone(), &name, conditions::is_crd_established());
        if !matches!(tokio::time::timeout(ANSWER, established).await, Ok(Ok(_))) {
            missing.push(name);
        }
    }
    Ok(missing)
}

/// Whether a live CRD serves our version with at least our fields. One that has more is of a newer operator.
fn covers(live: &CustomResourceDefinition, ours: &CustomResourceDefinition) -> bool {
    ours.spec.versions.iter().all(|want| {
        let there = live.spec.versions.iter().find(|v| v.name == want.name && v.served);
        let schema = |v| serde_json::to_value(v).unwrap_or_default();
        there.is_some_and(|there| has_fields(&schema(&there.schema), &schema(&want.schema)))
    })
}

/// Every property of `ours` is in `live`, at every depth.
fn has_fields(live: &serde_json::Value, ours: &serde_json::Value) -> bool {
    match ours {
        serde_json::Value::Object(fields) => fields.iter().all(|(name, below)| match live.get(name) {
            Some(there) => has_fields(there, below),
            None => !below.is_object(),
        }),
        _ => true,
    }
}

/// Why a question was not answered; fixed words, since an error may quote addresses and names.
struct Failed(Problem);

impl Failed {
    fn enter(self, probe: &mut Probe) {
        if matches!(self.0.reason, reason::CREDENTIALS_REFUSED | reason::RIGHTS_MISSING) {
            probe.reachable = Check::Holds;
            probe.authorized = Check::Fails(self.0);
        } else {
            probe.reachable = Check::Fails(self.0);
        }
    }
}

async fn within<T>(question: impl Future<Output = kube::Result<T>>) -> Result<T, Failed> {
    let failed = |weight, reason, message: String| Err(Failed(Problem { weight, reason, message }));
    match tokio::time::timeout(ANSWER, question).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(s))) if s.code == 401 => {
            let message = "the API server does not accept the credentials: give new ones in the kubeconfig";
            failed(Weight::Stalls, reason::CREDENTIALS_REFUSED, message.into())
        }
        Ok(Err(kube::Error::Api(s))) if s.code == 403 => {
            let message =
                format!("the API server refused a question ({}): grant it to the user of the kubeconfig", s.reason);
            failed(Weight::Stalls, reason::RIGHTS_MISSING, message)
        }
        Ok(Err(kube::Error::Api(s))) => {
            failed(Weight::Fails, reason::UNREACHABLE, format!("the API server answers {}; it is tried again", s.code))
        }
        Ok(Err(error)) => {
            failed(Weight::Fails, reason::UNREACHABLE, format!("no connection: {}; it is tried again", words(&error)))
        }
        Err(_) => failed(Weight::Fails, reason::UNREACHABLE, "no answer in time; it is tried again".into()),
    }
}

fn words(error: &kube::Error) -> &'static str {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<rustls::Error>() {
            return "its certificate is not the one that certificate-authority-data vouches for";
        }
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            if io.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>) {
                return "its certificate is not the one that certificate-authority-data vouches for";
            }
            return match io.kind() {
                std::io::ErrorKind::ConnectionRefused => "nobody listens at the address",
                std::io::ErrorKind::TimedOut => "nobody answers at the address",
                _ => "the address cannot be reached",
            };
        }
        cause = error.source();
    }
    "the connection failed"
}

fn fails(weight: Weight, reason: &'static str, message: String) -> Check {
    Check::Fails(Problem { weight, reason, message })
}

fn unreachable(words: &str) -> Check {
    fails(Weight::Fails, reason::UNREACHABLE, format!("no connection: {words}; it is tried again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crd_of_an_older_version_does_not_cover_ours_and_a_newer_one_does() {
        let ours = &crate::api::workloads()[0];
        assert!(covers(ours, ours));
        let (mut older, mut newer) = (ours.clone(), ours.clone());
        let spec = |crd: &mut CustomResourceDefinition, change: &dyn Fn(&mut std::collections::BTreeMap<String, _>)| {
            let schema = crd.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
            change(schema.properties.as_mut().unwrap().get_mut("spec").unwrap().properties.as_mut().unwrap());
        };
        spec(&mut older, &|fields| drop(fields.remove("image")));
        spec(&mut newer, &|fields| drop(fields.insert("more".into(), fields["image"].clone())));
        assert!(!covers(&older, ours) && covers(&newer, ours));
    }
}
