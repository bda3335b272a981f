//! What the program says of itself: metrics, probes, the state of its resources, logs.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::Value;
use testbed::{Node, Testbed};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::kit::{Case, DEADLINE, Error, Outcome, bare, install_crds, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("metrics_and_the_debug_page_agree_with_the_audit_log", metrics),
        trial("a_program_that_reaches_no_api_server_is_alive_but_not_ready", unreachable),
    ]
}

/// The program, its log line by line, and where it serves what.
struct Program {
    _child: Child,
    log: mpsc::UnboundedReceiver<Value>,
    at: BTreeMap<String, String>,
}

impl Program {
    async fn start(kubeconfig: &std::path::Path, namespace: &str) -> Result<Self, Error> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aiscope-operator"));
        command.env("KUBECONFIG", kubeconfig).args(["run", "--log-format=json", "--namespace", namespace]);
        command.args(["--log-level=info,aiscope_operator=debug", "--metrics-bind-address=127.0.0.1:0"]);
        command.args(["--health-probe-bind-address=127.0.0.1:0", "--debug-bind-address=127.0.0.1:0"]);
        let mut child = command.stderr(std::process::Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("no log")?).lines();
        let (send, log) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = send.send(serde_json::from_str(&line).unwrap_or(Value::String(line)));
            }
        });
        let mut program = Self { _child: child, log, at: BTreeMap::new() };
        while program.at.len() < 3 {
            let line = program.says("serving").await?;
            let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            program.at.insert(word("flag"), word("address"));
        }
        Ok(program)
    }

    /// The next line with this message.
    async fn says(&mut self, message: &str) -> Result<Value, Error> {
        let found = async {
            while let Some(line) = self.log.recv().await {
                if line["message"] == message {
                    return Ok(line);
                }
            }
            Err(format!("the log ended without: {message}").into())
        };
        tokio::time::timeout(DEADLINE, found).await?
    }

    /// Status and body of a page.
    async fn get(&self, flag: &str, path: &str) -> Result<(u16, String), Error> {
        let mut stream = tokio::net::TcpStream::connect(&self.at[flag]).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        let (head, body) = reply.split_once("\r\n\r\n").ok_or("no reply")?;
        Ok((head.split(' ').nth(1).ok_or("no status")?.parse()?, body.to_owned()))
    }
}

/// The sum of a metric's series that have this in their labels.
fn sum(text: &str, name: &str, with: &str) -> usize {
    let rows = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    rows.filter(|line| line.contains(with))
        .filter_map(|line| line.rsplit(' ').next()?.trim_end_matches(".0").parse::<usize>().ok())
        .sum()
}

async fn metrics() -> Outcome {
    static OWN: OnceLock<Testbed> = OnceLock::new();
    let testbed = bare(Node::Simulated).await?;
    let testbed = OWN.get_or_init(|| testbed);
    testbed.install_traefik_crds().await?;
    install_crds(testbed).await?;
    let case = Case::on(testbed, "metrics").await?;
    let mut program = Program::start(testbed.kubeconfig(), "metrics").await?;
    // One host and path: the one that was there first has the route.
    case.serve("a", minimal()).await?;
    case.until_ready("a").await?;
    tokio::time::sleep(Duration::from_secs(1)).await; // Age is in whole seconds.
    for name in ["b", "c"] {
        case.serve(name, minimal()).await?;
    }
    for name in ["b", "c"] {
        case.until_reason(name, "Stalled", "RouteConflict").await?;
    }
    let line = program.says("reconciled").await?;
    let span = &line["span"];
    assert_eq!((&span["controller"], &span["namespace"]), (&"trackingserver".into(), &"metrics".into()), "{line}");
    assert_eq!(span["reconcileID"].as_str().map(str::len), Some(32), "{line}");

    let sent = || -> Result<Vec<testbed::Request>, Error> { Ok(testbed.requests("aiscope-operator/")?) };
    let writes = || -> Result<usize, Error> { Ok(sent()?.iter().filter(|r| r.verb == "patch").count()) };
    let mut before = 0;
    while writes()? != before {
        before = writes()?;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let (code, text) = program.get("metrics-bind-address", "/metrics").await?;
    assert!(code == 200 && text.ends_with("# EOF\n"), "{code} {text}");
    let requests = sent()?;
    let count = |is: &dyn Fn(&testbed::Request) -> bool| requests.iter().filter(|r| is(r)).count();
    let own = |r: &testbed::Request| r.resource.starts_with("experiment.aiscope/");
    let child = |r: &testbed::Request| r.verb == "patch" && !own(r) && !r.resource.ends_with("events");
    assert_eq!(sum(&text, "rest_client_requests_total", "method=\"PATCH\""), count(&|r| r.verb == "patch"));
    assert_eq!(sum(&text, "rest_client_requests_total", "method=\"POST\""), count(&|r| r.verb == "create"));
    assert_eq!(sum(&text, "aiscope_applies_total", ""), count(&child));
    assert_eq!(sum(&text, "aiscope_status_writes_total", ""), count(&|r| own(r) && r.subresource == "status"));
    assert_eq!(sum(&text, "aiscope_resources", "controller=\"trackingserver\""), 3);
    assert_eq!(sum(&text, "aiscope_resource_conditions", "condition=\"Stalled\",reason=\"RouteConflict\""), 2);
    assert_eq!(sum(&text, "workqueue_depth", ""), 0);

    let (code, debug) = program.get("debug-bind-address", "/debug/resources").await?;
    let debug: Value = serde_json::from_str(&debug)?;
    let shown = debug[""]["TrackingServer"].as_array().ok_or("no tracking servers")?;
    let reasons: Vec<_> = shown.iter().map(|r| (r["name"].as_str(), r["reason"].as_str())).collect();
    let conflict = Some("RouteConflict");
    assert_eq!(code, 200);
    assert_eq!(reasons, [(Some("a"), Some("Ready")), (Some("b"), conflict), (Some("c"), conflict)]);
    assert!(shown.iter().all(|r| r["generation"] == r["observedGeneration"] && r["failures"] == 0), "{debug}");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(program.get("health-probe-bind-address", path).await?, (200, "ok\n".into()), "{path}");
    }
    Ok(())
}

async fn unreachable() -> Outcome {
    let file = tempfile::NamedTempFile::new()?;
    // The port of "discard": nobody listens there.
    let config = "{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: x, cluster: {server: 'http://127.0.0.1:9'}}], \
                  users: [{name: x, user: {}}], contexts: [{name: x, context: {cluster: x, user: x}}]}";
    std::fs::write(file.path(), config)?;
    let program = Program::start(file.path(), "none").await?;
    let (code, words) = program.get("health-probe-bind-address", "/readyz").await?;
    assert!(code == 503 && (words.contains("not listed yet") || words.contains("do not run")), "{code} {words}");
    assert_eq!(program.get("health-probe-bind-address", "/healthz").await?.0, 200);
    Ok(())
}
