//! Faults inside the operator's client. A request is named by its meaning (method, path below the namespace, how many
//! of that came before), so a plan stays the same whatever order concurrent requests take.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::Notify;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process ends before the request is sent.
    CrashBefore,
    /// The process ends after the request was carried out and before its reply.
    CrashAfter,
    /// The API server answers with this code and does nothing.
    Refused(u16),
    /// The connection ends before the request is sent.
    ResetBefore,
    /// The request is carried out and the connection ends before the reply.
    ResetAfter,
    /// The request is carried out and the API server answers 504.
    TimeoutAfter,
}

/// A fault at a request.
pub type Plan = (String, Fault);

/// A write as it was made: its name, and what the API server answered (`None`: it never got there).
pub type Write = (String, Option<u16>);

/// Records the writes of all lives of one operator, and carries out one plan, once.
#[derive(Default)]
pub struct Injector {
    seen: Mutex<BTreeMap<String, usize>>,
    made: Mutex<Vec<Write>>,
    plan: Option<Plan>,
    /// Told when the process is to end.
    pub crash: Notify,
}

impl Injector {
    pub fn new(plan: Option<Plan>) -> Arc<Self> {
        Arc::new(Self { plan, ..Self::default() })
    }

    /// The writes so far, in order.
    pub fn made(&self) -> Vec<Write> {
        self.made.lock().unwrap().clone()
    }

    /// Whether the plan's request was ever made.
    pub fn struck(&self) -> bool {
        self.plan.as_ref().is_none_or(|(at, _)| self.made().iter().any(|(name, _)| name == at))
    }

    /// The name of a write and what happens to it. `None`: a read.
    fn meet(&self, request: &Request<Body>, namespace: &str) -> Option<(String, Option<Fault>)> {
        if request.method() == Method::GET {
            return None;
        }
        let path = request.uri().path();
        let below = path.split_once(&format!("/namespaces/{namespace}/")).map_or(path, |(_, below)| below);
        // The names of events are random.
        let what = format!("{} {}", request.method(), if below.starts_with("events") { "events" } else { below });
        let mut seen = self.seen.lock().unwrap();
        let count = seen.entry(what.clone()).or_default();
        *count += 1;
        let name = format!("{what} #{count}");
        let fault = self.plan.as_ref().filter(|(at, _)| *at == name).map(|(_, fault)| *fault);
        Some((name, fault))
    }

    /// Sends a write and records the answer; a write that never arrives is recorded as such.
    async fn send(
        &self,
        name: String,
        request: Option<Request<Body>>,
        inner: &Client,
    ) -> Option<kube::Result<Response<Body>>> {
        let reply = match request {
            Some(request) => Some(inner.send(request).await),
            None => None,
        };
        let code = reply.as_ref().and_then(|reply| reply.as_ref().ok()).map(|reply| reply.status().as_u16());
        self.made.lock().unwrap().push((name, code));
        reply
    }

    /// One request of a life of the operator that ends when `dead` becomes true.
    async fn carry(
        &self,
        request: Request<Body>,
        inner: Client,
        namespace: &str,
        dead: &AtomicBool,
    ) -> kube::Result<Response<Body>> {
        if dead.load(SeqCst) {
            return std::future::pending().await;
        }
        let Some((name, fault)) = self.meet(&request, namespace) else { return inner.send(request).await };
        let arrives = !matches!(fault, Some(Fault::CrashBefore | Fault::ResetBefore | Fault::Refused(_)));
        let reply = self.send(name, arrives.then_some(request), &inner).await;
        match fault {
            None => reply.unwrap_or_else(|| Err(lost())),
            Some(Fault::CrashBefore | Fault::CrashAfter) => {
                dead.store(true, SeqCst);
                self.crash.notify_one();
                std::future::pending().await
            }
            Some(Fault::ResetBefore | Fault::ResetAfter) => Err(lost()),
            Some(Fault::Refused(code)) => Ok(refusal(code)),
            Some(Fault::TimeoutAfter) => Ok(refusal(504)),
        }
    }

    /// A client of one life of the operator: after a crash none of its requests goes out.
    pub fn client(self: &Arc<Self>, inner: Client, namespace: &str) -> Client {
        let dead = Arc::new(AtomicBool::new(false));
        let (injector, place) = (self.clone(), namespace.to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (injector, inner, dead, place) = (injector.clone(), inner.clone(), dead.clone(), place.clone());
            async move { injector.carry(request, inner, &place, &dead).await }
        });
        Client::new(service, namespace)
    }
}

fn lost() -> kube::Error {
    kube::Error::Service("connection reset".into())
}

fn refusal(code: u16) -> Response<Body> {
    let reason = match code {
        403 => "Forbidden",
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
        "message": "injected" });
    let response =
        Response::builder().status(code).header("content-type", "application/json").header("retry-after", "1");
    response.body(Body::from(status.to_string().into_bytes())).expect("a response")
}
