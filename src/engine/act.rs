//! SHELL: the only place that writes children. One request for each step, none when nothing differs.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, ValidationDirective};
use kube::{Api, Client, ResourceExt};
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use super::child::MANAGER;
use super::error::Error;
use super::plan::{Prune, Step};
use super::summary;

/// A resourceVersion that no object has: an apply that carries it creates, or is refused with 409.
///
/// An apply is create-or-update, and forced it would silently take over an object that somebody made a moment ago. The
/// API server compares resourceVersions only with an object that is there, so this makes it create-only. Rejected: a
/// GET before each first apply, which costs a request and leaves a gap.
const NO_OBJECT: &str = "1";

fn params() -> PatchParams {
    PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply(MANAGER).force() }
}

/// Performs one step and returns the live object.
///
/// # Errors
/// The failed request. [`Error::is_surprise`] tells that the object is not what the plan believed.
pub async fn perform(client: &Client, namespace: &str, step: &Step, legacy: &[&str]) -> Result<DynamicObject, Error> {
    let (object, ar) = step.target();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, ar);
    let name = object.name_any();
    let mut body = object.clone();
    match step {
        Step::Create(..) => body.metadata.resource_version = Some(NO_OBJECT.into()),
        Step::Apply(_, _, uid) => body.metadata.uid = Some(uid.to_string()),
        Step::TakeOver(_, _, uid) => {
            take_over(&api, ar, &name, uid, legacy).await?;
            body.metadata.uid = Some(uid.to_string());
        }
        Step::Mint(_, _, key, uid) => {
            let failed =
                |_| Error::new("make up a value for", ar, &name, kube::Error::Service("no random numbers".into()));
            body.data["data"] = json!({ key: made_up().map_err(failed)? });
            match uid {
                Some(uid) => body.metadata.uid = Some(uid.to_string()),
                None => body.metadata.resource_version = Some(NO_OBJECT.into()),
            }
        }
    }
    api.patch(&name, &params(), &Patch::Apply(&body)).await.map_err(|e| Error::new("apply", ar, &name, e))
}

/// A value that nobody can guess: 258 random bits, in the alphabet of base64url, which needs no quoting anywhere.
fn made_up() -> Result<ByteString, Unspecified> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut value = [0; 43];
    SystemRandom::new().fill(&mut value)?;
    Ok(ByteString(value.iter().map(|byte| ALPHABET[usize::from(byte % 64)]).collect()))
}

/// Reads one object anew.
///
/// # Errors
/// The failed request.
pub async fn look(
    client: &Client,
    namespace: &str,
    ar: &ApiResource,
    name: &str,
) -> Result<Option<DynamicObject>, Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, ar);
    api.get_opt(name).await.map_err(|e| Error::new("get", ar, name, e))
}

/// Deletes an object that is still the one the plan saw. Its children go in the background, as with `kubectl delete`.
///
/// # Errors
/// The failed request; an object that is gone already is none.
pub async fn prune(client: &Client, namespace: &str, prune: &Prune) -> Result<(), Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &prune.ar);
    let preconditions =
        Preconditions { uid: Some(prune.uid.to_string()), resource_version: Some(prune.version.to_string()) };
    match api.delete(&prune.name, &DeleteParams::background().preconditions(preconditions)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
        Err(e) => Err(Error::new("delete", &prune.ar, &prune.name, e)),
    }
}

/// Makes the fields of earlier managers ours, so that the apply that follows removes those that are no longer wanted.
/// The method of client-go's `csaupgrade`: kubernetes#99003 tells what happens without.
async fn take_over(
    api: &Api<DynamicObject>,
    ar: &ApiResource,
    name: &str,
    uid: &str,
    legacy: &[&str],
) -> Result<(), Error> {
    let failed = |e| Error::new("take over", ar, name, e);
    let live = api.get(name).await.map_err(failed)?;
    let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
    let Some(fields) = ours_with(&live, entries, legacy) else { return Ok(()) };
    let patch = json!([
        { "op": "test", "path": "/metadata/uid", "value": uid },
        { "op": "test", "path": "/metadata/resourceVersion", "value": live.resource_version() },
        { "op": "replace", "path": "/metadata/managedFields", "value": fields },
    ]);
    let patch: json_patch::Patch = serde_json::from_value(patch).map_err(|e| failed(kube::Error::SerdeError(e)))?;
    api.patch(name, &PatchParams::default(), &Patch::<()>::Json(patch)).await.map(drop).map_err(failed)
}

/// `managedFields` with the legacy entries merged into our own; `None` when there is nothing to merge.
fn ours_with(live: &DynamicObject, entries: &[ManagedFieldsEntry], legacy: &[&str]) -> Option<Vec<Value>> {
    let legacy = |e: &ManagedFieldsEntry| summary::is_legacy(e, legacy);
    let mut merged = Value::Object(serde_json::Map::new());
    let mut time = None;
    for entry in entries.iter().filter(|e| legacy(e) || summary::is_ours(e)) {
        merge(&mut merged, entry.fields_v1.as_ref().map(|f| &f.0)?);
        time = entry.time.clone().or(time);
    }
    entries.iter().any(&legacy).then(|| {
        let others = entries.iter().filter(|e| !legacy(e) && !summary::is_ours(e));
        let mut all: Vec<Value> = others.filter_map(|e| serde_json::to_value(e).ok()).collect();
        all.push(json!({
            "manager": MANAGER, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": merged, "time": time,
            "apiVersion": live.types.as_ref().map(|t| &t.api_version),
        }));
        all
    })
}

/// The union of two field sets.
fn merge(into: &mut Value, from: &Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        for (key, below) in from {
            merge(into.entry(key).or_insert_with(|| Value::Object(serde_json::Map::new())), below);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    /// A request as it goes out: method, path and query, body.
    type Sent = (String, String, Value);

    /// A client whose server notes each request and answers with `replies` in turn.
    fn client(replies: Vec<(u16, Value)>) -> (Client, Arc<Mutex<Vec<Sent>>>) {
        let sent: Arc<Mutex<Vec<Sent>>> = Arc::default();
        let (log, replies) = (sent.clone(), Arc::new(Mutex::new(replies.into_iter())));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (log, replies) = (log.clone(), replies.clone());
            async move {
                let (method, uri) = (request.method().to_string(), request.uri().to_string());
                let body = request.into_body().collect_bytes().await?;
                log.lock().unwrap().push((method, uri, serde_json::from_slice(&body).unwrap_or_default()));
                let (code, reply) = replies.lock().unwrap().next().expect("no further request");
                Ok::<_, kube::Error>(
                    Response::builder().status(code).body(Body::from(reply.to_string().into_bytes())).unwrap(),
                )
            }
        });
        (Client::new(service, "n"), sent)
    }

    fn secret() -> (Box<DynamicObject>, ApiResource) {
        let ar = ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
        (Box::new(DynamicObject::new("s", &ar).data(json!({ "data": { "k": "eA==" } }))), ar)
    }

    fn conflict() -> (u16, Value) {
        (
            409,
            json!({ "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "modified" }),
        )
    }

    const APPLY: &str =
        "/api/v1/namespaces/n/secrets/s?&force=true&fieldManager=aiscope-operator&fieldValidation=Strict";

    #[tokio::test]
    async fn a_first_apply_is_create_only_and_a_conflict_is_a_surprise_not_a_failure() {
        let (client, sent) = client(vec![conflict()]);
        let (object, ar) = secret();
        let error = perform(&client, "n", &Step::Create(object, ar), &[]).await.unwrap_err();
        assert!(error.is_surprise());
        let body = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "resourceVersion": "1" }, "data": { "k": "eA==" } });
        assert_eq!(*sent.lock().unwrap(), [("PATCH".into(), APPLY.into(), body)]);
    }

    #[tokio::test]
    async fn an_apply_over_our_own_object_names_its_uid() {
        let (object, ar) = secret();
        let reply = serde_json::to_value(&object).unwrap();
        let (client, sent) = client(vec![(200, reply)]);
        perform(&client, "n", &Step::Apply(object, ar, "u".into()), &[]).await.unwrap();
        assert_eq!(sent.lock().unwrap()[0].2["metadata"], json!({ "name": "s", "uid": "u" }));
    }

    #[tokio::test]
    async fn a_prune_carries_both_preconditions_and_what_is_gone_is_no_failure() {
        let gone =
            json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "gone" });
        let (client, sent) = client(vec![(404, gone), conflict()]);
        let (_, ar) = secret();
        let step = Prune { ar, name: "s".into(), uid: "u".into(), version: 7 };
        prune(&client, "n", &step).await.unwrap();
        assert!(prune(&client, "n", &step).await.unwrap_err().is_surprise());
        let (method, path, body) = sent.lock().unwrap()[0].clone();
        assert_eq!((method.as_str(), path.as_str()), ("DELETE", "/api/v1/namespaces/n/secrets/s?"));
        assert_eq!(body["preconditions"], json!({ "uid": "u", "resourceVersion": "7" }));
        assert_eq!(body["propagationPolicy"], "Background");
    }

    #[tokio::test]
    async fn a_take_over_makes_the_earlier_managers_fields_ours_before_it_applies() {
        let (object, ar) = secret();
        let mut live = serde_json::to_value(&object).unwrap();
        live["metadata"]["resourceVersion"] = json!("7");
        live["metadata"]["managedFields"] = json!([
            { "manager": "kubectl", "operation": "Update", "fieldsV1": { "f:data": { "f:theirs": {} } } },
            { "manager": "old", "operation": "Update", "fieldsV1": { "f:data": { "f:k": {} } } },
            { "manager": MANAGER, "operation": "Apply", "fieldsV1": { "f:type": {} } },
        ]);
        let (client, sent) = client(vec![(200, live.clone()), (200, live.clone()), (200, live)]);
        perform(&client, "n", &Step::TakeOver(object, ar, "u".into()), &["old"]).await.unwrap();
        let sent = sent.lock().unwrap();
        let methods: Vec<_> = sent.iter().map(|(method, ..)| method.as_str()).collect();
        assert_eq!(methods, ["GET", "PATCH", "PATCH"]);
        let patch = &sent[1].2;
        assert_eq!((&patch[0]["value"], &patch[1]["value"]), (&json!("u"), &json!("7")));
        let entries = patch[2]["value"].as_array().unwrap();
        let managers: Vec<_> = entries.iter().map(|e| e["manager"].as_str().unwrap()).collect();
        assert_eq!(managers, ["kubectl", MANAGER]);
        assert_eq!(entries[1]["fieldsV1"], json!({ "f:data": { "f:k": {} }, "f:type": {} }));
    }
}
