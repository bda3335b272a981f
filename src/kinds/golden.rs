//! PURE (but for the files): golden tests. `testdata/<kind>/<case>.in.yaml` holds what is given, `<case>.out.yaml` the whole
//! child set. `UPDATE_GOLDEN=1 cargo test golden` rewrites the latter; read the difference before you commit it.
//!
//! A case is a document `given:` (optional: `ingress`, `gateway`, `proxy`, `now`, `conflict`), the resource, then live objects. `<cert NAME>` and
//! `<key NAME>` stand for certificates that are made anew for every run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Ingress, Platform, Proxy};
use crate::engine::child::Want;
use crate::engine::claims::Conflict;
use crate::engine::workload::{Observed, Problem, Workload};
use crate::render;

/// Checks every case of a kind, and reports all that differ.
pub fn check<W: Workload<Platform = Platform>>(kind: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kinds/testdata").join(kind);
    let names = placeholders();
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.to_str().is_some_and(|p| p.ends_with(".in.yaml")));
    cases.sort();
    assert!(!cases.is_empty(), "no cases in {}", dir.display());
    let mut stale = Vec::new();
    for input in cases {
        let output = PathBuf::from(input.to_str().unwrap().replace(".in.yaml", ".out.yaml"));
        let text = run::<W>(&std::fs::read_to_string(&input).unwrap(), &names);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&output, &text).unwrap();
        } else if std::fs::read_to_string(&output).unwrap_or_default() != text {
            stale.push(format!("{}:\n{text}", output.display()));
        }
    }
    assert!(stale.is_empty(), "UPDATE_GOLDEN=1 rewrites what differs:\n{}", stale.join("\n"));
}

/// One case, from text to text.
fn run<W: Workload<Platform = Platform>>(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let given = if documents[0].get("given").is_some() { documents.remove(0)["given"].take() } else { Value::Null };
    let documents: Vec<Value> = documents
        .into_iter()
        .map(|document| render::admitted(replaced(document, &|s| names.get(s).cloned())))
        .collect();
    let owner: W = serde_json::from_value(documents[0].clone()).unwrap();
    let seen: Vec<Observed> = documents[1..].iter().filter_map(render::observed::<W>).collect();
    let conflict = given["conflict"].as_str().map(|holder| Conflict { holder: holder.into() });
    let ingress = given["ingress"].as_str().map(|name| Ingress::from_str(name, true).unwrap()).unwrap_or_default();
    let gateway = given["gateway"].as_str().map(|name| name.parse().unwrap());
    let proxy = Proxy { namespace: given["proxy"].as_str().map(Into::into), ..Proxy::default() };
    let platform = Platform { ingress, gateway, proxy, pod_networks: vec!["10.*".into()], ..Platform::default() };
    let now: Timestamp = given["now"].as_str().unwrap_or("2026-01-01T00:00:00Z").parse().unwrap();

    let outcome = match render::children(&owner, &seen, conflict.as_ref(), &platform, now) {
        Err(blocked) => vec![json!({ "blocked": { "reason": blocked.reason, "message": blocked.message } })],
        Ok(set) => {
            let kinds = W::owns();
            let mut notes = json!({});
            let told = |p: &Problem| format!("{:?} {}: {}", p.weight, p.reason, p.message);
            if !set.problems.is_empty() {
                notes["problems"] = set.problems.iter().map(told).collect();
            }
            for child in &set.items {
                assert!(kinds.contains(&child.ar), "{} is not among the owned kinds", child.ar.kind);
                if matches!(child.want, Want::Stays) {
                    notes["stays"][&child.ar.kind] = child.name.clone().into();
                }
            }
            if let Some(at) = set.revisit {
                notes["revisit"] = at.to_string().into();
            }
            let notes = (notes != json!({})).then_some(notes);
            let objects = render::objects(&set).map(|object| serde_json::to_value(object).unwrap());
            notes.into_iter().chain(objects).collect()
        }
    };
    let back = |text: &str| names.iter().find(|(_, pem)| base64(pem) == text).map(|(name, _)| name.clone());
    let masked: Vec<Value> = outcome.into_iter().map(|document| replaced(document, &back)).collect();
    for document in &masked {
        let text = document.to_string();
        let secret = document["kind"] == "Secret";
        assert!(secret || !(text.contains("hunter2") || text.contains("PRIVATE KEY")), "a secret is shown: {text}");
    }
    render::yaml(&masked).unwrap()
}

/// Every string in a value, replaced where `by` says so.
fn replaced(value: Value, by: &dyn Fn(&str) -> Option<String>) -> Value {
    match value {
        Value::String(text) => Value::String(by(&text).unwrap_or(text)),
        Value::Array(items) => items.into_iter().map(|item| replaced(item, by)).collect(),
        Value::Object(map) => map.into_iter().map(|(key, item)| (key, replaced(item, by))).collect(),
        other => other,
    }
}

fn base64(text: &str) -> String {
    serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap().as_str().unwrap().to_owned()
}

/// Certificates by what is right or wrong with them.
fn placeholders() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (name, alternative, year) in [
        ("good", Some("ml.example.com"), 2030),
        ("wildcard", Some("*.example.com"), 2030),
        ("expired", Some("ml.example.com"), 2020),
        ("other-host", Some("other.example.com"), 2030),
        ("name-only", None, 2030),
    ] {
        let mut params =
            rcgen::CertificateParams::new(alternative.map(Into::into).into_iter().collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "ml.example.com");
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        all.insert(format!("<cert {name}>"), params.self_signed(&key).unwrap().pem());
        all.insert(format!("<key {name}>"), key.serialize_pem());
    }
    all
}
