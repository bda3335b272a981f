//! The API server's audit log: which requests were made, by whom, in order.

use std::path::Path;

use serde::Deserialize;

use crate::error::Error;

/// One request as the API server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `patch`, `update`, `delete`, `deletecollection`.
    pub verb: String,
    /// `group/resource`; only `resource` in the core group; empty for a path such as `/readyz`.
    pub resource: String,
    /// `status`, `scale`, ... or empty.
    pub subresource: String,
    /// Empty for what is in no namespace.
    pub namespace: String,
    /// Empty for a list.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// As the client sent it.
    pub user_agent: String,
    /// The authenticated user.
    pub user: String,
    /// When the request arrived, RFC 3339 with microseconds.
    pub received: String,
    /// When the audit event was written: for a watch when it was established, else when it was answered.
    pub time: String,
    /// Path and query.
    pub uri: String,
}

/// The policy: every request's metadata but those of the cluster's own parts, each once.
pub(crate) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:kube-controller-manager, system:kube-scheduler, system:kube-proxy, system:apiserver, system:kwok]
- level: None
  userGroups: [system:nodes]
- level: None
  userGroups: [system:serviceaccounts:kube-system]
- level: None
  nonResourceURLs: [/readyz*, /livez*, /healthz*]
- level: Metadata
";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI", default)]
    request_uri: String,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    user: User,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    request_received_timestamp: String,
    stage_timestamp: String,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

/// The requests of clients whose User-Agent begins with `prefix`, in the order in which they arrived.
pub(crate) fn read(path: &Path, prefix: &str) -> Result<Vec<Request>, Error> {
    let log = match std::fs::read_to_string(path) {
        Ok(log) => log,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::file(path)(error)),
    };
    let mut requests = parse(&log, prefix)?;
    requests.sort_by(|a, b| a.received.cmp(&b.received));
    Ok(requests)
}

fn parse(log: &str, prefix: &str) -> Result<Vec<Request>, Error> {
    let mut requests = Vec::new();
    // The server may be writing the last line right now.
    for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n') && line.contains(prefix)) {
        let event: Event = serde_json::from_str(line).map_err(Error::format("audit log"))?;
        // A watch is counted when it is established; its end is no request.
        let counts = if event.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
        let refused = event.verb == "watch"
            && event.stage == "ResponseComplete"
            && event.response_status.as_ref().is_some_and(|status| status.code >= 400);
        if event.user_agent.starts_with(prefix) && (event.stage == counts || event.stage == "Panic" || refused) {
            requests.push(event.into());
        }
    }
    Ok(requests)
}

impl From<Event> for Request {
    fn from(event: Event) -> Self {
        let object = event.object_ref.unwrap_or_default();
        let resource = if object.api_group.is_empty() {
            object.resource
        } else {
            format!("{}/{}", object.api_group, object.resource)
        };
        Self {
            verb: event.verb,
            resource,
            subresource: object.subresource,
            namespace: object.namespace,
            name: object.name,
            code: event.response_status.map_or(0, |status| status.code),
            user_agent: event.user_agent,
            user: event.user.username,
            received: event.request_received_timestamp,
            time: event.stage_timestamp,
            uri: event.request_uri,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = r#"{"kind":"Event","level":"Metadata","stage":"ResponseComplete","requestURI":"/apis/apps/v1/namespaces/a/deployments/web?fieldManager=x","verb":"patch","user":{"username":"admin","groups":["system:masters"]},"sourceIPs":["127.0.0.1"],"userAgent":"mine/1.0","objectRef":{"resource":"deployments","namespace":"a","name":"web","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00.000002Z"}"#;

    #[test]
    fn a_line_becomes_a_request() {
        let requests = parse(&format!("{PATCH}\n"), "mine").unwrap();
        assert_eq!(requests.len(), 1);
        let request = &requests[0];
        assert_eq!(
            (request.verb.as_str(), request.resource.as_str(), request.code),
            ("patch", "apps/deployments", 201)
        );
        assert_eq!((request.namespace.as_str(), request.name.as_str()), ("a", "web"));
    }

    #[test]
    fn others_and_an_unfinished_last_line_are_left_out() {
        assert!(parse(&format!("{PATCH}\n"), "other").unwrap().is_empty());
        assert_eq!(parse(&format!("{PATCH}\n{}", &PATCH[..90]), "mine").unwrap().len(), 1);
    }

    #[test]
    fn a_watch_counts_once() {
        let started = PATCH.replace("patch", "watch").replace("ResponseComplete", "ResponseStarted");
        let ended = PATCH.replace("patch", "watch").replace("201", "200");
        assert_eq!(parse(&format!("{started}\n{ended}\n"), "mine").unwrap().len(), 1);
        let refused = PATCH.replace("patch", "watch").replace("201", "403");
        assert_eq!(parse(&format!("{refused}\n"), "mine").unwrap()[0].code, 403);
    }
}
