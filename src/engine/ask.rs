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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Response;
    use k8s_openapi::jiff::SignedDuration;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A client that answers with these, and what was asked: path, `Authorization`, body.
    type Asked = Arc<Mutex<Vec<(String, bool, String)>>>;

    fn client(replies: Vec<(u16, Value)>) -> (Client, Asked) {
        let (asked, replies) = (Asked::default(), Arc::new(Mutex::new(replies.into_iter())));
        let log = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (log, replies) = (log.clone(), replies.clone());
            async move {
                let (path, header) = (request.uri().to_string(), request.headers().contains_key("authorization"));
                let body = String::from_utf8(request.into_body().collect_bytes().await?.to_vec()).unwrap();
                log.lock().unwrap().push((path, header, body));
                let (code, reply) = replies.lock().unwrap().next().expect("no further question");
                Ok::<_, kube::Error>(
                    Response::builder().status(code).body(Body::from(reply.to_string().into_bytes())).unwrap(),
                )
            }
        });
        (Client::new(service, "n"), asked)
    }

    fn idle(token: bool) -> Idle {
        Idle {
            timeout: SignedDuration::from_hours(1),
            service: "desk".into(),
            port: "http",
            paths: vec!["/a".into(), "/b".into()],
            token: token.then(|| ("desk-token".into(), "token")),
            read: |answers, _| Timestamp::from_second(answers.iter().filter_map(|a| a["at"].as_i64()).max()?).ok(),
        }
    }

    #[tokio::test]
    async fn the_token_travels_in_the_body_and_never_in_the_address() {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "desk-token" }, "data": { "token": "cyZjcmV0" } });
        let (client, asked) = client(vec![(200, secret), (200, json!({ "at": 1 })), (200, json!({ "at": 7 }))]);
        let used = last_used(&client, "n", &idle(true), Timestamp::UNIX_EPOCH).await;
        assert_eq!(used, Timestamp::from_second(7).ok());
        let proxy = "/api/v1/namespaces/n/services/desk:http/proxy";
        let form = "token=s%26cret".to_owned();
        let wanted = [(format!("{proxy}/a"), false, form.clone()), (format!("{proxy}/b"), false, form)];
        assert_eq!(asked.lock().unwrap()[1..], wanted);
    }

    #[tokio::test]
    async fn no_answer_is_unknown() {
        let failed = json!({ "kind": "Status", "status": "Failure", "code": 503, "message": "no endpoints" });
        let (client, _) = client(vec![(200, json!({ "at": 1 })), (503, failed)]);
        assert_eq!(last_used(&client, "n", &idle(false), Timestamp::UNIX_EPOCH).await, None);
    }
}
