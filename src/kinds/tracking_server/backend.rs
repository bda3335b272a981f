//! PURE: where a `TrackingServer`'s database is and whose credentials it uses.

use crate::api::common::{Sensitive, given};
use crate::api::tracking_server::TrackingServerSpec;
use crate::engine::workload::Seen;
use crate::parts::credentials::Source;

/// Where the database is.
pub(super) enum Backend {
    /// In a place that is nobody's secret.
    Default(&'static str),
    /// Given.
    Given(Source),
}

impl Backend {
    /// A reference counts before the inline value, and that before a key of the credentials' Secret.
    pub(super) fn find(spec: &TrackingServerSpec, mounted: bool, seen: &Seen<'_>) -> Self {
        let reference = |secret: &str, key: &str| Source::Reference { secret: secret.into(), key: key.into() };
        if let Some((secret, own)) =
            spec.backend_uri_secret_ref.as_ref().and_then(|r| Some((given(Some(&r.name))?, given(Some(&r.key)))))
        {
            return Self::Given(reference(secret, own.unwrap_or("BACKEND_URI")));
        }
        if let Some(uri) = Sensitive::given(spec.backend_uri.as_ref()) {
            return Self::Given(Source::Inline(uri.into()));
        }
        let credentials = spec.credentials_secret_ref.as_ref().and_then(|r| given(Some(&r.name)));
        if let Some((secret, facts)) = credentials.and_then(|name| Some((name, seen.secret(name)?))) {
            let has = |key: &&str| facts.keys.iter().any(|k| **k == **key);
            if let Some(key) = ["BACKEND_URI", "MLFLOW_BACKEND_STORE_URI"].iter().find(|key| has(key)) {
                return Self::Given(reference(secret, key));
            }
        }
        Self::Default(if mounted { "sqlite:////mlflow/mlflow.db" } else { "sqlite:////tmp/mlflow.db" })
    }

    /// SQLite or a directory; what a Secret refers to is taken for a database server.
    pub(super) fn is_file(&self) -> bool {
        match self {
            Self::Default(_) => true,
            Self::Given(Source::Reference { .. }) => false,
            Self::Given(Source::Inline(uri)) => {
                uri.split_once("://").is_none_or(|(scheme, _)| scheme.starts_with("sqlite") || scheme == "file")
            }
        }
    }
}

/// The credentials of the artifact store: from the Secret that is referred to, else inline, else none.
pub(super) fn access_keys(spec: &TrackingServerSpec) -> Vec<(&'static str, Source)> {
    let secret = spec.credentials_secret_ref.as_ref().and_then(|r| given(Some(&r.name)));
    [("AWS_ACCESS_KEY_ID", &spec.aws_access_key), ("AWS_SECRET_ACCESS_KEY", &spec.aws_secret_key)]
        .into_iter()
        .filter_map(|(name, inline)| {
            let source = match secret {
                Some(secret) => Source::Reference { secret: secret.into(), key: name.into() },
                None => Source::Inline(Sensitive::given(inline.as_ref())?.into()),
            };
            Some((name, source))
        })
        .collect()
}
