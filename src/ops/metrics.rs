//! SHELL: `/metrics`, in the text format of `OpenMetrics`.
//!
//! Names are controller-runtime's where the meaning is the same, so that existing dashboards work. Labels never name a
//! single resource: what it costs to keep does not grow with their number.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::process;
use crate::engine::meters::{Children, Load, Meters, Tally, Work};

/// All there is to measure in this process.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    clusters: Mutex<BTreeMap<Box<str>, Weak<Meters>>>,
    leading: AtomicBool,
}

/// What one controller shows at one moment.
struct Reading {
    cluster: Box<str>,
    kind: Box<str>,
    work: Arc<Work>,
    load: Load,
    tally: Tally,
}

type Labels = Vec<(&'static str, String)>;

impl Metrics {
    /// Meters for a cluster. Their series are there as long as somebody holds them; the newest of a name counts.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Arc<Meters> {
        let meters = Arc::new(Meters::new(name));
        let mut clusters = self.0.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.insert(name.into(), Arc::downgrade(&meters));
        meters
    }

    /// The clusters there are, by name.
    #[must_use]
    pub fn clusters(&self) -> Vec<Arc<Meters>> {
        let mut clusters = self.0.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.retain(|_, meters| meters.strong_count() > 0);
        clusters.values().filter_map(Weak::upgrade).collect()
    }

    /// This process leads, or no longer does.
    pub fn lead(&self, leading: bool) {
        self.0.leading.store(leading, Ordering::Relaxed);
    }

    /// What `/metrics` answers.
    ///
    /// # Errors
    /// Never with a sound registry.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn readings(&self) -> Vec<Reading> {
        let mut all = Vec::new();
        for meters in self.clusters() {
            let loads: BTreeMap<_, _> = meters.loads().into_iter().collect();
            let mut tallies: BTreeMap<_, _> = meters.tallies().into_iter().collect();
            for (kind, work) in meters.works() {
                let load = loads.get(&kind).copied().unwrap_or_default();
                let tally = tallies.remove(&kind).unwrap_or_default();
                all.push(Reading { cluster: meters.cluster().into(), kind, work, load, tally });
            }
        }
        all
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let readings = self.readings();
        let mut sheet = Sheet(&mut encoder);
        reconciles(&mut sheet, &readings)?;
        queues(&mut sheet, &readings)?;
        children(&mut sheet, &readings)?;
        resources(&mut sheet, &readings)?;
        connections(&mut sheet, &self.clusters())?;
        let leading = f64::from(u8::from(self.0.leading.load(Ordering::Relaxed)));
        sheet.gauge(
            "leader_election_master_status",
            "1 when this process acts, 0 when it stands by.",
            [(vec![("name", super::LEASE.to_owned())], leading)],
        )?;
        of_process(&mut sheet)
    }
}

fn reconciles(sheet: &mut Sheet<'_, '_>, readings: &[Reading]) -> fmt::Result {
    let results = readings.iter().flat_map(|r| {
        let work = &r.work;
        [("success", &work.succeeded), ("requeue_after", &work.revisits), ("error", &work.failed)]
            .map(|(result, count)| (r.with("result", result), count.get()))
    });
    sheet.counter("controller_runtime_reconcile", "Reconciles, by result.", results)?;
    for (name, help, of) in [
        (
            "controller_runtime_reconcile_errors",
            "Reconciles that failed and are tried again.",
            (|w| w.failed.get()) as fn(&Work) -> u64,
        ),
        ("controller_runtime_reconcile_panics", "Reconciles that ended by a panic.", |w| w.panics.get()),
        ("controller_runtime_reconcile_timeouts", "Reconciles given up after two minutes.", |w| w.timeouts.get()),
        ("workqueue_retries", "Reconciles queued again after a failure.", |w| w.failed.get()),
        ("aiscope_status_writes", "Status writes sent.", |w| w.statuses.get()),
    ] {
        sheet.counter(name, help, readings.iter().map(|r| (r.labels(), of(&r.work))))?;
    }
    let name = "controller_runtime_reconcile_time_seconds";
    sheet.histogram(name, "How long reconciles took.", readings.iter().map(|r| (r.labels(), &r.work.took)))
}

fn queues(sheet: &mut Sheet<'_, '_>, readings: &[Reading]) -> fmt::Result {
    let added = readings.iter().map(|r| (r.labels(), r.load.added));
    sheet.counter("workqueue_adds", "Resources that became due.", added)?;
    for (name, help, of) in [
        ("workqueue_depth", "Resources that are due and wait.", (|l| count(l.depth)) as fn(&Load) -> f64),
        ("workqueue_longest_running_processor_seconds", "Age of the oldest reconcile under way.", |l| {
            l.longest.as_secs_f64()
        }),
        ("workqueue_unfinished_work_seconds", "Ages of all reconciles under way, together.", |l| {
            l.unfinished.as_secs_f64()
        }),
        ("controller_runtime_active_workers", "Reconciles under way.", |l| count(l.active)),
        ("controller_runtime_max_concurrent_reconciles", "How many may be under way, of all kinds together.", |l| {
            count(l.slots)
        }),
    ] {
        sheet.gauge(name, help, readings.iter().map(|r| (r.labels(), of(&r.load))))?;
    }
    let waited = readings.iter().map(|r| (r.labels(), &r.work.waited));
    sheet.histogram("workqueue_queue_duration_seconds", "How long resources were due before their turn.", waited)?;
    let took = readings.iter().map(|r| (r.labels(), &r.work.took));
    sheet.histogram("workqueue_work_duration_seconds", "How long their turns took.", took)
}

fn children(sheet: &mut Sheet<'_, '_>, readings: &[Reading]) -> fmt::Result {
    for (name, help, of) in [
        ("aiscope_applies", "Server-side applies of children sent.", (|c| c.applied) as fn(&Children) -> u64),
        ("aiscope_unchanged", "Children found as wanted, without a request.", |c| c.unchanged),
        ("aiscope_prunes", "Children deleted, because no longer wanted.", |c| c.pruned),
        ("aiscope_conflicts", "Writes refused because the object was not as believed.", |c| c.conflicts),
    ] {
        let rows = readings
            .iter()
            .flat_map(|r| r.work.children().into_iter().map(move |(kind, c)| (r.with("kind", &kind), of(&c))));
        sheet.counter(name, help, rows)?;
    }
    Ok(())
}

fn resources(sheet: &mut Sheet<'_, '_>, readings: &[Reading]) -> fmt::Result {
    sheet.gauge("aiscope_resources", "Resources.", readings.iter().map(|r| (r.labels(), count(r.tally.total))))?;
    let conditions = readings.iter().flat_map(|r| {
        r.tally.conditions.iter().map(|((type_, reason), n)| {
            let mut labels = r.with("condition", type_);
            labels.push(("reason", reason.to_string()));
            (labels, count(*n))
        })
    });
    sheet.gauge("aiscope_resource_conditions", "Resources with this condition True, by its reason.", conditions)?;
    let ends = readings.iter().filter_map(|r| Some((r.labels(), r.tally.certificate?.as_duration().as_secs_f64())));
    sheet.gauge("aiscope_certificate_not_after_timestamp_seconds", "When the first certificate ends.", ends)
}

fn connections(sheet: &mut Sheet<'_, '_>, clusters: &[Arc<Meters>]) -> fmt::Result {
    let requests = clusters.iter().flat_map(|meters| {
        meters.requests().into_iter().map(|(sent, n)| {
            let code = sent.code.map_or("<error>".into(), |code| code.to_string());
            let mut labels = of_cluster(meters.cluster());
            labels.extend([("code", code), ("method", sent.method.to_string()), ("host", sent.host.to_string())]);
            (labels, n)
        })
    });
    sheet.counter("rest_client_requests", "Requests to the API server, by reply; no reply: <error>.", requests)?;
    let restarts = clusters.iter().flat_map(|meters| {
        meters.restarts().into_iter().map(|(kind, n)| {
            let mut labels = of_cluster(meters.cluster());
            labels.push(("kind", kind.into()));
            (labels, n)
        })
    });
    sheet.counter("aiscope_watch_restarts", "Watches that broke and were begun anew.", restarts)
}

fn of_process(sheet: &mut Sheet<'_, '_>) -> fmt::Result {
    let Some(process) = process::read() else { return Ok(()) };
    let none = Labels::new;
    let mut cpu = sheet.0.encode_descriptor("process_cpu_seconds", "CPU time.", None, MetricType::Counter)?;
    cpu.encode_counter::<Labels, f64, u64>(&process.cpu_seconds, None)?;
    sheet.gauge("process_resident_memory_bytes", "Memory in use.", [(none(), count(process.resident_bytes))])?;
    sheet.gauge("process_open_fds", "Open files and connections.", [(none(), count(process.open_files))])?;
    sheet.gauge("process_start_time_seconds", "When it began.", [(none(), process.start_seconds)])
}

impl Reading {
    fn labels(&self) -> Labels {
        let mut labels = of_cluster(&self.cluster);
        // controller-runtime spells controllers in lower case; its queues carry the name twice.
        let controller = self.kind.to_lowercase();
        labels.extend([("controller", controller.clone()), ("name", controller)]);
        labels
    }

    fn with(&self, name: &'static str, value: &str) -> Labels {
        let mut labels = self.labels();
        labels.push((name, value.to_owned()));
        labels
    }
}

/// The operator's own cluster has no label, so that Prometheus' own `cluster` label, if there is one, names it.
fn of_cluster(name: &str) -> Labels {
    if name.is_empty() { Labels::new() } else { vec![("cluster", name.to_owned())] }
}

/// Exact up to 2^53, more than anybody has resources.
#[expect(clippy::cast_precision_loss, reason = "a count")]
fn count(n: u64) -> f64 {
    n as f64
}

struct Sheet<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Sheet<'_, '_> {
    fn counter(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = (Labels, u64)>) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            metric.encode_family(&labels)?.encode_counter::<Labels, u64, u64>(&value, None)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = (Labels, f64)>) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn histogram<'h>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, &'h Histogram)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, value) in rows {
            value.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::meters::Sent;

    #[test]
    fn series_of_a_cluster_go_with_its_meters_and_the_own_cluster_has_no_label() {
        let metrics = Metrics::default();
        let (own, member) = (metrics.cluster(""), metrics.cluster("member-a"));
        for meters in [&own, &member] {
            meters.work("TrackingServer").succeeded.inc();
            meters.work("TrackingServer").child("Deployment", |c| c.applied += 2);
            meters.sent(Sent { code: Some(200), method: "GET".into(), host: "h:1".into() });
        }
        let text = metrics.text().unwrap();
        let labels = r#"controller="trackingserver",name="trackingserver""#;
        for line in [
            format!("controller_runtime_reconcile_total{{{labels},result=\"success\"}} 1\n"),
            format!("controller_runtime_reconcile_total{{cluster=\"member-a\",{labels},result=\"success\"}} 1\n"),
            format!("aiscope_applies_total{{{labels},kind=\"Deployment\"}} 2\n"),
            "rest_client_requests_total{code=\"200\",method=\"GET\",host=\"h:1\"} 1\n".into(),
            "leader_election_master_status{name=\"aiscope-operator\"} 0.0\n".into(),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(text.ends_with("# EOF\n") && text.contains("process_resident_memory_bytes "), "{text}");
        drop(member);
        assert!(!metrics.text().unwrap().contains("member-a"));
    }

    #[test]
    fn of_two_meters_of_one_name_the_newer_counts() {
        let metrics = Metrics::default();
        let (old, new) = (metrics.cluster("m"), metrics.cluster("m"));
        old.work("A").panics.inc();
        new.work("B").panics.inc();
        let text = metrics.text().unwrap();
        assert!(text.contains("controller=\"b\"") && !text.contains("controller=\"a\""), "{text}");
    }
}
