//! PURE: what is said of a member.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::lifetime::Lifetime;
use crate::api::Cluster;
use crate::api::cluster::{ClusterStatus, KindCount};
use crate::engine::child::ChildSet;
use crate::engine::reason;
use crate::engine::status::conditions;
use crate::engine::workload::{Blocked, Conditioned, Problem, Weight};
use crate::kinds::{NAMES, Platform};

/// What a question to a member came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Check {
    /// It was not asked, or nobody answered.
    #[default]
    Unknown,
    /// It is as it should be.
    Holds,
    /// It is not.
    Fails(Problem),
}

/// All questions to a member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// Its API server answers.
    pub reachable: Check,
    /// The credentials may do what the controllers need.
    pub authorized: Check,
    /// The CRDs of this version are there.
    pub crds: Check,
    /// What the API server says that it is.
    pub version: Option<String>,
    /// Which cluster it is: the uid of its namespace `kube-system`.
    pub cluster: Option<String>,
}

impl Probe {
    /// Everything holds.
    #[must_use]
    pub fn proven(&self) -> bool {
        [&self.reachable, &self.authorized, &self.crds].iter().all(|check| **check == Check::Holds)
    }
}

/// What runs in a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    /// Nothing.
    Stopped,
    /// What the spec asks for.
    Running,
    /// What an earlier spec or kubeconfig asked for.
    Earlier,
}

/// What is known of a member.
#[derive(Clone, Debug)]
pub struct Member {
    /// The answers of the newest connection.
    pub probe: Probe,
    /// What stands in the way beside them.
    pub blocked: Option<Problem>,
    /// What runs.
    pub controllers: Controllers,
    /// When the credentials end.
    pub lifetime: Option<Lifetime>,
    /// How many resources there are.
    pub counts: Vec<KindCount>,
}

/// The controllers that a spec asks for, and the facts they need.
///
/// # Errors
/// A field that is not understood.
pub fn wanted(cluster: &Cluster, hub: &Platform) -> Result<(Vec<&'static str>, Platform), Blocked> {
    let invalid = |message: String| Blocked::new(reason::INVALID_SPEC, message);
    let kinds = match cluster.spec.kinds.as_deref() {
        None => NAMES.to_vec(),
        Some(named) => {
            if let Some(odd) = named.iter().find(|name| !NAMES.contains(&name.as_str())) {
                return Err(invalid(format!("spec.kinds names {odd:?}: choose from {}", NAMES.join(", "))));
            }
            NAMES.into_iter().filter(|name| named.iter().any(|n| n == name)).collect()
        }
    };
    if kinds.contains(&"JupyterNotebook") && !kinds.contains(&"TrackingServer") {
        return Err(invalid(
            "spec.kinds: JupyterNotebook needs TrackingServer beside it, which it may refer to".into(),
        ));
    }
    let mut platform = hub.clone();
    if let Some(name) = crate::api::common::given(cluster.spec.ingress.as_ref()) {
        platform.ingress = clap::ValueEnum::from_str(name, false)
            .map_err(|_| invalid("spec.ingress: choose from traefik, nginx, gateway, none".into()))?;
    }
    if let Some(name) = crate::api::common::given(cluster.spec.gateway.as_ref()) {
        platform.gateway = Some(name.parse().map_err(|e| invalid(format!("spec.gateway: {e}")))?);
    }
    if platform.ingress == crate::kinds::Ingress::Gateway && platform.gateway.is_none() {
        return Err(invalid("spec.gateway is missing: name the Gateway there by namespace/name".into()));
    }
    Ok((kinds, platform))
}

/// The status, by the contract of all kinds.
#[must_use]
pub fn status(cluster: &Cluster, member: &Member, now: Timestamp) -> ClusterStatus {
    let old = cluster.status.clone().unwrap_or_default();
    let generation = cluster.metadata.generation.unwrap_or_default();
    let paused = cluster.spec.paused == Some(true);
    let problems = if paused { Vec::new() } else { problems(member) };
    let settled = if paused {
        (reason::PAUSED, "stopped, as spec.paused asks for".to_owned())
    } else {
        (reason::READY, "the controllers run".to_owned())
    };
    let live = ChildSet { settled: Some(settled), ..ChildSet::default() };
    let mut all = conditions(&old.conditions, generation, &live, &problems, now);
    let running = match member.controllers {
        Controllers::Running => ("True", reason::AS_EXPECTED, "all kinds of the spec".to_owned()),
        Controllers::Earlier => {
            ("True", reason::PROGRESSING, "the earlier connection and spec are kept until the new ones hold".into())
        }
        Controllers::Stopped if paused => ("False", reason::PAUSED, "spec.paused is true".into()),
        Controllers::Stopped => ("False", reason::NOT_CONNECTED, "they start when everything else holds".into()),
    };
    let mut rows = vec![
        ("Reachable", told(&member.probe.reachable)),
        ("Authorized", told(&member.probe.authorized)),
        ("CRDsPresent", told(&member.probe.crds)),
        ("ControllersRunning", running),
    ];
    if let Some(lifetime) = member.lifetime.filter(|lifetime| lifetime.warns() <= now) {
        let message = format!("the credentials end at {}: give new ones in the kubeconfig", lifetime.ends);
        rows.push((reason::CREDENTIALS_EXPIRING, ("True", reason::CREDENTIALS_EXPIRING, message)));
    }
    all.extend(rows.into_iter().map(|row| condition(&old.conditions, generation, row, now)));
    let sum = |of: fn(&KindCount) -> i64| (!member.counts.is_empty()).then(|| member.counts.iter().map(of).sum());
    let mut status = ClusterStatus {
        version: member.probe.version.clone().or(old.version),
        credentials_not_after: member.lifetime.map(|l| Time(l.ends)),
        resources: sum(|c| c.total),
        ready_resources: sum(|c| c.ready),
        kinds: member.counts.clone(),
        ..ClusterStatus::default()
    };
    status.settle(generation, all);
    status
}

fn problems(member: &Member) -> Vec<Problem> {
    let mut problems: Vec<Problem> = member.blocked.iter().cloned().collect();
    for check in [&member.probe.reachable, &member.probe.authorized, &member.probe.crds] {
        if let Check::Fails(problem) = check {
            problems.push(problem.clone());
        }
    }
    if problems.is_empty() && member.controllers != Controllers::Running {
        let message = "connecting".into();
        problems.push(Problem { weight: Weight::Waits, reason: reason::PROGRESSING, message });
    }
    problems
}

fn told(check: &Check) -> (&'static str, &'static str, String) {
    match check {
        Check::Unknown => ("Unknown", reason::NOT_CONNECTED, "not asked yet, or no answer".into()),
        Check::Holds => ("True", reason::AS_EXPECTED, "as it should be".into()),
        Check::Fails(problem) => ("False", problem.reason, problem.message.clone()),
    }
}

type Row = (&'static str, (&'static str, &'static str, String));

fn condition(old: &[Condition], generation: i64, (type_, (status, reason, message)): Row, now: Timestamp) -> Condition {
    let before = old.iter().find(|c| c.type_ == type_ && c.status == status);
    let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    Condition {
        type_: type_.into(),
        status: status.into(),
        reason: reason.into(),
        message,
        observed_generation: Some(generation),
        last_transition_time: before.map_or(Time(second), |c| c.last_transition_time.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(controllers: Controllers, probe: Probe) -> Member {
        Member { probe, blocked: None, controllers, lifetime: None, counts: Vec::new() }
    }

    fn shown(cluster: &Cluster, member: &Member) -> Vec<String> {
        let status = status(cluster, member, Timestamp::UNIX_EPOCH);
        status.conditions.iter().map(|c| format!("{}={} {}", c.type_, c.status, c.reason)).collect()
    }

    fn holds() -> Probe {
        Probe { reachable: Check::Holds, authorized: Check::Holds, crds: Check::Holds, ..Probe::default() }
    }

    #[test]
    fn a_member_whose_controllers_run_is_ready_and_a_paused_one_too() {
        let mut cluster = Cluster::default();
        assert_eq!(
            shown(&cluster, &member(Controllers::Running, holds()))[..2],
            ["Ready=True Ready", "Degraded=False AsExpected"]
        );
        cluster.spec.paused = Some(true);
        let told = shown(&cluster, &member(Controllers::Stopped, Probe::default()));
        assert!(told.contains(&"Ready=True Paused".into()) && told.contains(&"ControllersRunning=False Paused".into()));
    }

    #[test]
    fn a_bad_new_kubeconfig_stalls_while_the_earlier_one_goes_on() {
        let blocked = Problem { weight: Weight::Stalls, reason: "KubeconfigExec", message: "why".into() };
        let member = Member { blocked: Some(blocked), ..member(Controllers::Earlier, holds()) };
        let told = shown(&Cluster::default(), &member);
        for line in ["Ready=False KubeconfigExec", "Stalled=True KubeconfigExec", "ControllersRunning=True Progressing"]
        {
            assert!(told.contains(&line.into()), "{told:?}");
        }
    }

    #[test]
    fn a_spec_names_kinds_and_back_ends_that_exist() {
        let hub = Platform::default();
        let judged = |kinds: &[&str], ingress: &str| {
            let mut cluster = Cluster::default();
            cluster.spec.kinds = Some(kinds.iter().map(|&k| k.to_owned()).collect());
            cluster.spec.ingress = Some(ingress.into());
            wanted(&cluster, &hub).map(|(kinds, platform)| (kinds.len(), platform.ingress))
        };
        assert_eq!(judged(&["EasyService"], "nginx"), Ok((1, crate::kinds::Ingress::Nginx)));
        for (kinds, ingress) in
            [(["Pod"], ""), (["JupyterNotebook"], ""), (["EasyService"], "x"), (["EasyService"], "gateway")]
        {
            assert_eq!(judged(&kinds, ingress).unwrap_err().reason, reason::INVALID_SPEC, "{kinds:?} {ingress}");
        }
    }
}
