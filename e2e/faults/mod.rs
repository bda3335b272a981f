//! Right under faults: every write of a resource's life is crashed at and refused in turn, and each time the end is the
//! same as without a fault, nothing was made or deleted twice, and a restart afterwards writes nothing.

mod inject;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use aiscope_operator::api::{CodeServer, EasyService, JupyterNotebook, TrackingServer};
use aiscope_operator::engine::operator::Operator;
use aiscope_operator::engine::workload::Workload;
use aiscope_operator::kinds;
use futures::{StreamExt, stream};
use kube::ResourceExt;
use kube::api::{ApiResource, ListParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::kit::{Case, DEADLINE, Error, Outcome, certificate, minimal, trial};
use inject::{Fault, Injector, Plan, Write};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_tracking_server_ends_the_same_after_a_fault_at_any_write", all::<TrackingServer>),
        trial("a_notebook_ends_the_same_after_a_fault_at_any_write", all::<JupyterNotebook>),
        trial("a_code_server_ends_the_same_after_a_fault_at_any_write", all::<CodeServer>),
        trial("an_easy_service_ends_the_same_after_a_fault_at_any_write", all::<EasyService>),
    ]
}

/// Those that run with the tests on an API server: a conflict at each write of a kind that makes up a value.
pub fn sample() -> Vec<Trial> {
    vec![trial("a_code_server_ends_the_same_after_a_conflict_at_any_write", conflicts::<CodeServer>)]
}

const FAULTS: [Fault; 11] = [
    Fault::CrashBefore,
    Fault::CrashAfter,
    Fault::ResetBefore,
    Fault::ResetAfter,
    Fault::TimeoutAfter,
    Fault::Refused(409),
    Fault::Refused(422),
    Fault::Refused(403),
    Fault::Refused(429),
    Fault::Refused(500),
    Fault::Refused(503),
];

/// How many plans run at once, whatever their kind.
static SLOTS: Semaphore = Semaphore::const_new(8);

/// What a plan came to: the end by field, how often each object was made and deleted, and the writes in order.
struct End {
    fields: BTreeMap<String, String>,
    counts: BTreeMap<String, usize>,
    writes: Vec<Write>,
}

/// What every plan of a kind is compared with.
struct Reference {
    end: End,
    /// The fields that two runs without a fault agree on.
    stable: BTreeSet<String>,
    /// The writes that both made.
    writes: BTreeSet<String>,
}

/// What a plan without a failure showed.
enum Verdict {
    /// The same end as without the fault.
    Same,
    /// Nothing: the write was not made this time.
    Missed,
}

/// All plans of a kind, or those whose id contains `FAULTS_PLAN`. With `FAULTS_LIST` only their ids are printed.
async fn all<W: Workload>() -> Outcome {
    some::<W>("all", |_| true).await
}

async fn conflicts<W: Workload>() -> Outcome {
    some::<W>("conflicts", |fault| fault == Fault::Refused(409)).await
}

async fn some<W: Workload>(place: &str, wanted: fn(Fault) -> bool) -> Outcome {
    let kind = W::kind(&()).to_lowercase();
    let place = &format!("{place}-{kind}");
    let reference = &learn::<W>(place).await?;
    let named = std::env::var("FAULTS_PLAN").unwrap_or_default();
    let plans = reference
        .writes
        .iter()
        .flat_map(|write| FAULTS.map(|fault| (write.clone(), fault)))
        .filter(|plan| wanted(plan.1));
    let plans = plans.map(|plan| (format!("{kind}: {} {:?}", plan.0, plan.1), plan));
    let plans: Vec<_> = plans.enumerate().filter(|(_, (id, _))| id.contains(&named)).collect();
    if std::env::var_os("FAULTS_LIST").is_some() {
        for (_, (id, _)) in plans {
            println!("{id}");
        }
        return Ok(());
    }
    let judged = plans.into_iter().map(|(number, (id, plan))| async move {
        let judged = judge::<W>(&format!("{place}-{number}"), plan, reference).await;
        match &judged {
            Ok(Verdict::Same) => println!("ok     {id}"),
            Ok(Verdict::Missed) => println!("missed {id}"),
            Err(wrong) => println!("FAILED {id}: {wrong}"),
        }
        (id, judged)
    });
    let judged: Vec<_> = stream::iter(judged).buffer_unordered(8).collect().await;
    let same = judged.iter().filter(|(_, judged)| matches!(judged, Ok(Verdict::Same))).count();
    let failed: Vec<_> = judged.iter().filter(|(_, judged)| judged.is_err()).map(|(id, _)| &**id).collect();
    let missed = judged.len() - same - failed.len();
    println!("{kind}: {same} plans held, {} failed, {missed} missed their write", failed.len());
    if !failed.is_empty() {
        return Err(failed.join("\n").into());
    }
    // A status that is written in one step or in two by chance is missed now and then; more means that nothing is tested.
    if same < missed.max(1) { Err(format!("only {same} plans met their write").into()) } else { Ok(()) }
}

/// Two runs without a fault, because what differs between them says nothing.
async fn learn<W: Workload>(place: &str) -> Result<Reference, Error> {
    let (first, second) = (format!("{place}-first"), format!("{place}-second"));
    let (end, other) = tokio::try_join!(run::<W>(&first, Injector::new(None)), run::<W>(&second, Injector::new(None)))?;
    assert_eq!(end.counts, other.counts, "two runs without a fault");
    let stable = end.fields.iter().filter(|(key, value)| other.fields.get(*key) == Some(value));
    let stable: BTreeSet<_> = stable.map(|(key, _)| key.clone()).collect();
    let [one, two] = [&end, &other].map(|end| end.writes.iter().map(|w| w.0.clone()).collect::<BTreeSet<_>>());
    let writes: BTreeSet<_> = one.intersection(&two).cloned().collect();
    assert!(writes.len() >= 4 && stable.len() >= 50, "nothing to compare: {writes:?}");
    Ok(Reference { end, stable, writes })
}

/// Runs a plan and compares its end. What is timed differently may make a write needless; then it is tried again.
async fn judge<W: Workload>(place: &str, plan: Plan, reference: &Reference) -> Result<Verdict, Error> {
    for attempt in 1..=3 {
        let injector = Injector::new(Some(plan.clone()));
        let namespace = format!("{place}-{attempt}");
        let ended = tokio::time::timeout(DEADLINE * 2, run::<W>(&namespace, injector.clone())).await;
        let told = || format!("the writes were {:#?}", injector.made());
        let end = match ended {
            Err(_) => return Err(format!("not over after {:?}; {}", DEADLINE * 2, told()).into()),
            Ok(Err(error)) => return Err(format!("{error}; {}", told()).into()),
            Ok(Ok(end)) => end,
        };
        if injector.struck() {
            return match difference(&reference.end, &end, &reference.stable) {
                Some(differs) => Err(format!("{differs}; {}", told()).into()),
                None => Ok(Verdict::Same),
            };
        }
    }
    Ok(Verdict::Missed)
}

fn difference(wanted: &End, got: &End, stable: &BTreeSet<String>) -> Option<String> {
    let fields = stable.iter().chain(got.fields.keys().filter(|key| !wanted.fields.contains_key(*key)));
    let differs = fields.filter(|key| wanted.fields.get(*key) != got.fields.get(*key));
    let differs: Vec<_> =
        differs.map(|k| format!("{k}: {:?} -> {:?}", wanted.fields.get(k), got.fields.get(k))).collect();
    if !differs.is_empty() {
        return Some(format!("another end: {differs:#?}"));
    }
    (wanted.counts != got.counts).then(|| format!("made or deleted: {:?} -> {:?}", wanted.counts, got.counts))
}

/// One plan: the resource becomes Ready whatever happens; then a restart that writes nothing.
async fn run<W: Workload>(namespace: &str, injector: Arc<Injector>) -> Result<End, Error> {
    let _slot = SLOTS.acquire().await?;
    let case = Case::new(namespace).await?;
    case.apply::<W>("a", spec(&W::kind(&()), namespace)).await?;
    live::<W>(&case, &injector).await?;
    let again = Injector::new(None);
    let mut operator = Life::start(&case, &again);
    // What was queued before this one has had its turn when this one stands.
    let mut mark = spec(&W::kind(&()), namespace);
    mark["size"] = json!(0);
    if let Some(url) = mark.get_mut("url") {
        *url = json!(format!("https://{namespace}.example.com/mark"));
    }
    case.apply::<W>("mark", mark).await?;
    case.until_stands::<W>("mark").await?;
    operator.stop.cancel();
    tokio::time::timeout(DEADLINE, &mut operator.task).await??;
    let made = again.made();
    let late: Vec<_> = made.iter().filter(|(name, _)| !name.contains("/mark") && !name.contains("events")).collect();
    if !late.is_empty() {
        return Err(format!("writes after it settled: {late:#?}").into());
    }
    let writes = injector.made();
    let mut counts = BTreeMap::new();
    for (name, code) in &writes {
        let what = name.split(" #").next().unwrap_or(name);
        if !what.contains("events") && (*code == Some(201) || (what.starts_with("DELETE") && *code == Some(200))) {
            *counts.entry(what.to_owned()).or_default() += 1;
        }
    }
    Ok(End { fields: state::<W>(&case).await?, counts, writes })
}

/// Lets the operator live until the resource stands and nothing is under way; starts it anew after each crash.
async fn live<W: Workload>(case: &Case, injector: &Arc<Injector>) -> Outcome {
    'life: loop {
        let mut operator = Life::start(case, injector);
        tokio::select! {
            stands = case.until_stands::<W>("a") => drop(stands?),
            () = injector.crash.notified() => continue 'life,
        }
        operator.stop.cancel();
        tokio::select! {
            ended = tokio::time::timeout(DEADLINE, &mut operator.task) => return Ok(ended??),
            () = injector.crash.notified() => {}
        }
    }
}

/// One life of the operator; it ends when this is dropped.
struct Life {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Life {
    fn start(case: &Case, injector: &Arc<Injector>) -> Self {
        let client = injector.client(case.testbed.client(&case.agent()).expect("a client"), &case.namespace);
        let stop = CancellationToken::new();
        let operator = kinds::register(Operator::new(client, vec![case.namespace.clone()]), &Arc::default());
        Self { task: tokio::spawn(operator.run(stop.clone())), stop }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Every field of every object that the operator may write, without what differs by time and place.
async fn state<W: Workload>(case: &Case) -> Result<BTreeMap<String, String>, Error> {
    let mut fields = BTreeMap::new();
    let owner = case.all::<W>().get("a").await?.uid().unwrap_or_default();
    let kinds = W::owns().into_iter().chain([ApiResource::erase::<W>(&())]);
    for ar in kinds {
        for mut object in case.dynamic(&ar).list(&ListParams::default()).await?.items {
            if object.name_any().starts_with("mark") {
                continue;
            }
            let name = format!("{}/{}", ar.kind, object.name_any());
            let managers = object.metadata.managed_fields.take().unwrap_or_default();
            for entry in managers {
                let path = format!("{name}/managed/{:?}/{:?}/{:?}", entry.manager, entry.operation, entry.subresource);
                fields.insert(path, serde_json::to_string(&entry.fields_v1)?.replace(&owner, "UID"));
            }
            let text = serde_json::to_string(&object)?.replace(&owner, "UID").replace(&case.namespace, "NS");
            flatten(&name, &serde_json::from_str(&text)?, &mut fields);
        }
    }
    Ok(fields)
}

fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    const VOLATILE: [&str; 8] = [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "lastTransitionTime",
        "lastUpdateTime",
        "clusterIP",
        "clusterIPs",
        "volumeName",
    ];
    match value {
        Value::Object(map) => {
            for (key, below) in map.iter().filter(|(key, _)| !VOLATILE.contains(&key.as_str())) {
                flatten(&format!("{path}/{key}"), below, into);
            }
        }
        Value::Array(items) => {
            for (index, below) in items.iter().enumerate() {
                flatten(&format!("{path}/{index}"), below, into);
            }
        }
        leaf => drop(into.insert(path.into(), leaf.to_string())),
    }
}

fn spec(kind: &str, namespace: &str) -> Value {
    static PAIR: LazyLock<(String, String)> = LazyLock::new(|| certificate("*.example.com"));
    if kind == "EasyService" {
        return json!({ "size": 1, "image": "nginx:1.7.9", "ports": [{ "name": "http", "port": 80 }] });
    }
    let mut spec = minimal();
    spec["url"] = json!(format!("https://{namespace}.example.com/x"));
    spec["cert"] = json!(PAIR.0);
    spec["key"] = json!(PAIR.1);
    if kind == "TrackingServer" {
        spec["aws_secret_key"] = json!("secret");
    }
    spec
}
