//! SHELL: `render`.

use std::path::Path;

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{Format, RenderArgs};
use crate::api::{CodeServer, EasyService, JupyterNotebook, TrackingServer};
use crate::engine::workload::{Observed, Workload, describe};
use crate::kinds::Platform;
use crate::render;

/// One document of a manifest, and where it stands.
struct Document {
    place: String,
    value: Value,
}

/// Prints the children of every resource in the manifests. `false` when one of them has none to print.
pub(super) fn print(args: RenderArgs) -> Result<bool, String> {
    let RenderArgs { files, output, platform } = args;
    let platform = Platform::from(platform);
    let mut documents = Vec::new();
    for file in &files {
        documents.extend(read(file)?);
    }
    let (mut children, mut all_understood) = (Vec::new(), true);
    for document in &documents {
        match resource(document, &documents, &platform) {
            Some(Ok(objects)) => children.extend(objects),
            Some(Err(why)) => {
                eprintln!("{}: {why}", document.place);
                all_understood = false;
            }
            None => {}
        }
    }
    if children.is_empty() && all_understood {
        return Err("there is no resource of this operator in the manifests".into());
    }
    let text = match output {
        Format::Yaml => render::yaml(&children)?,
        Format::Json => format!("{:#}\n", json!({ "apiVersion": "v1", "kind": "List", "items": children })),
    };
    super::print(&text)?;
    Ok(all_understood)
}

fn read(file: &Path) -> Result<Vec<Document>, String> {
    let name = file.display().to_string();
    let text = if name == "-" { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    let text = text.map_err(|error| format!("{name}: {error}"))?;
    let values: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| format!("{name}: {error}"))?;
    let documents = values.into_iter().enumerate().filter(|(_, value)| !value.is_null());
    Ok(documents
        .map(|(at, value)| Document {
            place: format!("{name}, document {}", at + 1),
            value: if value.is_object() { render::admitted(value) } else { value },
        })
        .collect())
}

/// The children of a document, if it is a resource of one of the kinds.
fn resource(document: &Document, all: &[Document], platform: &Platform) -> Option<Result<Vec<DynamicObject>, String>> {
    children::<TrackingServer>(document, all, platform)
        .or_else(|| children::<JupyterNotebook>(document, all, platform))
        .or_else(|| children::<CodeServer>(document, all, platform))
        .or_else(|| children::<EasyService>(document, all, platform))
}

/// The children of a document, if it is a resource of this kind.
fn children<W: Workload<Platform = Platform>>(
    document: &Document,
    all: &[Document],
    platform: &Platform,
) -> Option<Result<Vec<DynamicObject>, String>> {
    let is = document.value["apiVersion"] == *W::api_version(&()) && document.value["kind"] == *W::kind(&());
    is.then(|| rendered::<W>(document, all, platform))
}

fn rendered<W: Workload<Platform = Platform>>(
    document: &Document,
    all: &[Document],
    platform: &Platform,
) -> Result<Vec<DynamicObject>, String> {
    let owner: W = serde_path_to_error::deserialize(&document.value)
        .map_err(|error| format!("{}: {}: {}", W::kind(&()), error.path(), error.inner()))?;
    let namespace = &document.value["metadata"]["namespace"];
    let seen: Vec<Observed> = all
        .iter()
        .filter(|other| other.value["metadata"]["namespace"] == *namespace)
        .filter_map(|other| render::observed::<W>(&other.value))
        .collect();
    let set =
        render::children(&owner, &seen, None, platform, now()).map_err(|b| format!("{}: {b}", describe(&owner)))?;
    for problem in &set.problems {
        eprintln!("{}: {}: {}: {}", document.place, describe(&owner), problem.reason, problem.message);
    }
    Ok(render::objects(&set).cloned().collect())
}

#[expect(clippy::disallowed_methods, reason = "the edge: a certificate is judged by today's date")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(values: Vec<Value>) -> Vec<Document> {
        let document = |(at, value): (usize, Value)| Document { place: at.to_string(), value: render::admitted(value) };
        values.into_iter().enumerate().map(document).collect()
    }

    fn first(values: Vec<Value>) -> Option<Result<Vec<DynamicObject>, String>> {
        let all = documents(values);
        resource(&all[0], &all, &Platform::default())
    }

    fn server(spec: &Value) -> Value {
        let metadata = json!({ "name": "tracker" });
        json!({ "apiVersion": "experiment.aiscope/v1alpha2", "kind": "TrackingServer", "metadata": metadata, "spec": spec })
    }

    #[test]
    fn a_plain_manifest_is_rendered_for_the_default_namespace_and_no_uid() {
        let objects = first(vec![server(&json!({ "image": "m", "url": "http://h/" }))]).unwrap().unwrap();
        assert!(objects.iter().all(|o| o.metadata.namespace.as_deref() == Some("default")));
        assert!(objects.iter().all(|o| o.metadata.owner_references.as_ref().unwrap()[0].uid.starts_with("0000")));
    }

    #[test]
    fn a_secret_in_the_manifests_counts_as_there() {
        let spec = json!({ "image": "m", "url": "http://h/", "credentialsSecretRef": { "name": "store" } });
        let count = |values| first(values).unwrap().unwrap().len();
        let alone = count(vec![server(&spec)]);
        let data = json!({ "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b" });
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "store" }, "stringData": data });
        assert_eq!(count(vec![server(&spec), secret]), alone + 1, "the Deployment no longer waits");
    }

    #[test]
    fn what_is_wrong_is_said_with_object_field_and_remedy() {
        let why = |spec| first(vec![server(&spec)]).unwrap().unwrap_err();
        let blocked = why(json!({ "image": "m", "url": "h/team" }));
        assert_eq!(
            blocked,
            "TrackingServer default/tracker: InvalidSpec: spec.url must start with http:// or https://"
        );
        let undecodable = why(json!({ "size": "three" }));
        assert!(undecodable.starts_with("TrackingServer: spec.size: invalid type"), "{undecodable}");
    }

    #[test]
    fn another_kind_is_none_of_ours() {
        assert!(first(vec![json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } })]).is_none());
    }
}
