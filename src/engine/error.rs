//! SHELL: what can go wrong between us and the API server, and what the user is told of it.

use kube::api::ApiResource;
use kube::core::Status;

use super::reason;
use super::workload::{Problem, Weight};

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {verb} {kind} {name}")]
pub struct Error {
    /// What was tried.
    pub verb: &'static str,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Why.
    #[source]
    pub source: kube::Error,
}

impl Error {
    /// Names the object of a failed request.
    #[must_use]
    pub fn new(verb: &'static str, ar: &ApiResource, name: &str, source: kube::Error) -> Self {
        Self { verb, kind: ar.kind.clone(), name: name.into(), source }
    }

    /// The server's reply, if it gave one.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match &self.source {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// The state of the object was not what we believed (409), or it is gone (404).
    #[must_use]
    pub fn is_surprise(&self) -> bool {
        self.status().is_some_and(|s| s.is_conflict() || s.is_already_exists() || s.is_not_found())
    }

    /// What the user is told.
    #[must_use]
    pub fn problem(&self) -> Problem {
        let what = format!("{} {} {}", self.verb, self.kind, self.name);
        let Some(status) = self.status() else {
            return Problem {
                weight: Weight::Waits,
                reason: reason::REQUEST_FAILED,
                message: format!("cannot {what}: no reply from the API server; it is tried again"),
            };
        };
        // A namespace that is being deleted refuses creation: its resources go with it.
        if has_cause(status, "NamespaceTerminating") {
            let message = format!("cannot {what}: its namespace is being deleted");
            return Problem { weight: Weight::Waits, reason: reason::TERMINATING, message };
        }
        let message = format!("cannot {what}: {}", self.words(status));
        match status.code {
            400 | 403 | 404 | 405 | 413 | 422 => Problem { weight: Weight::Stalls, reason: reason::REJECTED, message },
            _ => Problem { weight: Weight::Waits, reason: reason::REQUEST_FAILED, message },
        }
    }

    /// The server's words; of a Secret only which fields it names, because it may quote their values.
    fn words(&self, status: &Status) -> String {
        if self.kind != "Secret" || status.code != 422 {
            return status.message.clone();
        }
        let fields = status.details.iter().flat_map(|d| &d.causes).map(|c| format!("{} ({})", c.field, c.reason));
        format!("invalid: {}", fields.collect::<Vec<_>>().join(", "))
    }
}

fn has_cause(status: &Status, reason: &str) -> bool {
    status.details.iter().flat_map(|d| &d.causes).any(|c| c.reason == reason)
}
