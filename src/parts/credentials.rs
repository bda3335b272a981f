//! PURE: secret values on their way to the pod: by reference to a Secret, never as literals in the pod's spec.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, Secret, SecretKeySelector};
use ring::digest::{Context, SHA256};

use super::service::named;
use crate::engine::reason::SECRET_MISSING;
use crate::engine::workload::{Problem, Seen, Weight};

/// Annotation on the pod template: it changes with the credentials, so that they roll the pods by themselves.
pub const FINGERPRINT: &str = "aiscope.io/credentials";

/// Where a secret value comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// From the spec; it travels in the resource's own Secret.
    Inline(String),
    /// From a key of a Secret that someone else keeps.
    Reference {
        /// Name of the Secret.
        secret: String,
        /// Key in its data.
        key: String,
    },
}

/// The secret part of a pod's environment.
#[derive(Clone, Default)]
pub struct Credentials {
    secret: String,
    inline: BTreeMap<String, String>,
    referenced: BTreeSet<(String, String)>,
}

impl Credentials {
    /// Nothing yet; inline values will travel in a Secret of this name.
    #[must_use]
    pub fn new(secret: String) -> Self {
        Self { secret, ..Self::default() }
    }

    /// The name of the Secret that inline values travel in.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.secret
    }

    /// The variable `name` with a secret value; `key` is its key in the resource's own Secret.
    pub fn variable(&mut self, name: &str, key: &str, source: &Source) -> EnvVar {
        let (secret, key) = match source {
            Source::Inline(value) => {
                self.inline.insert(key.to_owned(), value.clone());
                (self.secret.clone(), key.to_owned())
            }
            Source::Reference { secret, key } => {
                self.referenced.insert((secret.clone(), key.clone()));
                (secret.clone(), key.clone())
            }
        };
        referring(name, &secret, &key)
    }

    /// The resource's own Secret, if anything is to travel in it.
    #[must_use]
    pub fn secret(&self) -> Option<Secret> {
        let bytes = |(key, value): (&String, &String)| (key.clone(), ByteString(value.clone().into_bytes()));
        (!self.inline.is_empty()).then(|| Secret {
            metadata: named(&self.secret),
            type_: Some("Opaque".into()),
            data: Some(self.inline.iter().map(bytes).collect()),
            ..Secret::default()
        })
    }

    /// What is referred to and not there.
    #[must_use]
    pub fn missing(&self, seen: &Seen<'_>) -> Vec<Problem> {
        let absent = |(secret, key): &(String, String)| match seen.secret(secret) {
            None => Some(format!("Secret {secret} (key {key}) does not exist; create it, the Deployment waits for it")),
            Some(facts) if !facts.keys.iter().any(|k| **k == **key) => {
                Some(format!("Secret {secret} has no key {key}; add it, the Deployment waits for it"))
            }
            Some(_) => None,
        };
        self.referenced
            .iter()
            .filter_map(absent)
            .map(|message| Problem { weight: Weight::Fails, reason: SECRET_MISSING, message })
            .collect()
    }

    /// Changes exactly when a value does; `None` without any. Salted, so that equal credentials of two resources do not
    /// show, and cut short, so that it proves nothing to someone who guesses.
    #[must_use]
    pub fn fingerprint(&self, salt: &str, seen: &Seen<'_>) -> Option<String> {
        if self.inline.is_empty() && self.referenced.is_empty() {
            return None;
        }
        let mut hash = Context::new(&SHA256);
        let mut add = |part: &[u8]| {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        add(salt.as_bytes());
        for (key, value) in &self.inline {
            add(key.as_bytes());
            add(value.as_bytes());
        }
        let secrets: BTreeSet<&String> = self.referenced.iter().map(|(secret, _)| secret).collect();
        for secret in secrets {
            add(secret.as_bytes());
            add(&seen.secret(secret).map_or(0, |facts| facts.content).to_be_bytes());
        }
        let digest = hash.finish();
        let short = digest.as_ref().iter().take(8).fold(0_u64, |short, byte| short << 8 | u64::from(*byte));
        Some(format!("{short:016x}"))
    }
}

/// The variable `name` with the value of a Secret's key.
#[must_use]
pub fn referring(name: &str, secret: &str, key: &str) -> EnvVar {
    let selector = SecretKeySelector { name: secret.into(), key: key.into(), optional: None };
    let from = EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value_from: Some(from), value: None }
}
