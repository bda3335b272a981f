//! SHELL: asks a workload when it was last used.
//!
//! Through the API server's Service proxy, so that it works the same in the cluster and outside of it. The proxy takes the
//! `Authorization` header for its own, and a token in the query would end in audit logs; so the token travels as a form in
//! the body, which Jupyter (tornado) reads with any method and which no audit policy records for a proxied request.

use std::time::Duration;

use http::Request;
use http::header::CONTENT_TYPE;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use serde_json::Value;

use super::idle::Idle;

/// A workload that does not answer within this is not known to be idle.
const PATIENCE: Duration = Duration::from_secs(5);

/// When the workload was last used; `None` when that cannot be found out now.
pub async fn last_used(client: &Client, namespace: &str, idle: &Idle, now: Timestamp) -> Option<Timestamp> {
    match tokio::time::timeout(PATIENCE, answers(client, namespace, idle)).await {
        Ok(Ok(answers)) => (idle.read)(&answers, now),
        Ok(Err(error)) => {
            // The error may name the path, never the token: that is in the body.
            tracing::debug!(namespace, service = idle.service, %error, "idle or not: no answer");
            None
        }
        Err(_) => {
            tracing::debug!(namespace, service = idle.service, "idle or not: no answer in time");
            None
        }
    }
}

async fn answers(client: &Client, namespace: &str, idle: &Idle) -> kube::Result<Vec<Value>> {
    let mut form = Vec::new();
    if let Some((secret, key)) = &idle.token {
        let secret = Api::<Secret>::namespaced(client.clone(), namespace).get(secret).await?;
        let token = secret.data.and_then(|mut data| data.remove(*key)).map(|bytes| bytes.0).unwrap_or_default();
        let token = String::from_utf8(token).unwrap_or_default();
        form = url::form_urlencoded::Serializer::new(String::new()).append_pair("token", &token).finish().into_bytes();
    }
    let mut answers = Vec::new();
    for path in &idle.paths {
        let service = format!("/api/v1/namespaces/{namespace}/services/{}:{}", idle.service, idle.port);
        let request = Request::get(format!("{service}/proxy{path}"))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form.clone())
            .map_err(kube::Error::HttpError)?;
        answers.push(client.request(request).await?);
    }
    Ok(answers)
}
