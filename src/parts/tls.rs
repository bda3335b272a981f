//! PURE: the certificate of a resource's route: made from the spec, or found as a Secret of the resource's name.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::service::named;
use crate::engine::certificate::Certificate;
use crate::engine::child::{ChildSet, Desired};
use crate::engine::reason::{
    CERTIFICATE_EXPIRED, CERTIFICATE_HOST_MISMATCH, EXPIRES_WITHIN_7_DAYS, EXPIRES_WITHIN_30_DAYS, INVALID_CERTIFICATE,
};
use crate::engine::summary::{Owner, Summary};
use crate::engine::workload::{Problem, Seen, Weight, Workload};

/// What is decided about a certificate.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The Secret that the route uses.
    pub served: Option<String>,
    secret: Option<Secret>,
    stays: bool,
    problems: Vec<Problem>,
    revisit: Option<Timestamp>,
}

/// What the spec says: certificate and key.
pub type Pair<'a> = (Option<&'a str>, Option<&'a str>);

impl Tls {
    /// Decides by `spec.cert`, `spec.key` and the Secret of the resource's name, whoever made it.
    pub fn decide<W: Workload>(owner: &W, name: &str, pair: Pair<'_>, host: &str, seen: &Seen<'_>) -> Self {
        let parsed = match pair {
            (None, None) => return Self::found(owner, name, host, seen),
            (Some(cert), Some(key)) => Certificate::parse(cert.as_bytes(), key.as_bytes()).map(|c| (c, cert, key)),
            (Some(_), None) => Err("spec.cert is given without spec.key; give both or neither".into()),
            (None, Some(_)) => Err("spec.key is given without spec.cert; give both or neither".into()),
        };
        match parsed {
            Ok((certificate, cert, key)) => {
                let place = "spec.cert".to_owned();
                Self { secret: Some(secret(name, cert, key)), served: Some(name.into()), ..Self::default() }.judged(
                    &certificate,
                    &place,
                    host,
                    seen.now,
                )
            }
            Err(why) => {
                let why = if why.starts_with("spec.") { why } else { format!("spec.cert, spec.key: {why}").into() };
                Self::kept(name, &why, host, seen)
            }
        }
    }

    /// Neither is given: a Secret of the name counts, except our own from before, which is about to be pruned.
    fn found<W: Workload>(owner: &W, name: &str, host: &str, seen: &Seen<'_>) -> Self {
        match seen.get::<Secret>(name) {
            Some(summary) if !is_ours(owner, summary) => Self::default().live(name, host, seen),
            _ => Self::default(),
        }
    }

    /// What is given is no certificate: the last good Secret stays, and everything else goes on.
    fn kept(name: &str, why: &str, host: &str, seen: &Seen<'_>) -> Self {
        let mut tls = Self::default().live(name, host, seen);
        tls.problems.insert(0, problem(Weight::Stalls, INVALID_CERTIFICATE, why.to_owned()));
        tls
    }

    /// Serves the Secret that exists, if it holds a certificate, and leaves it as it is.
    fn live(self, name: &str, host: &str, seen: &Seen<'_>) -> Self {
        let Some(facts) = seen.secret(name) else { return self };
        let place = format!("Secret {name}");
        match &facts.certificate {
            // A Secret for something else that happens to have the name: a proxy could not serve it.
            None => Self { stays: true, ..self },
            Some(Ok(certificate)) => {
                Self { stays: true, served: Some(name.into()), ..self }.judged(certificate, &place, host, seen.now)
            }
            Some(Err(why)) => {
                let message = format!("{place}: {why}; clients are refused until it is replaced");
                let mut tls = Self { stays: true, served: Some(name.into()), ..self };
                tls.problems.push(problem(Weight::Degrades, INVALID_CERTIFICATE, message));
                tls
            }
        }
    }

    /// Adds what clients will object to.
    fn judged(mut self, certificate: &Certificate, place: &str, host: &str, now: Timestamp) -> Self {
        self.age(certificate, place, now);
        if !certificate.ordered {
            let message = format!(
                "{place}: the chain is out of order, so some clients refuse it; put the certificate of the host first and \
                 each issuer behind what it issued"
            );
            self.problems.push(problem(Weight::Degrades, INVALID_CERTIFICATE, message));
        }
        if !certificate.covers(host) {
            let message = format!(
                "{place}: the certificate's subject alternative names do not include {host}, so clients refuse it; \
                 get one that does, or change spec.url"
            );
            self.problems.push(problem(Weight::Degrades, CERTIFICATE_HOST_MISMATCH, message));
        }
        self
    }

    /// Says that the certificate has ended or will soon, and when to look again: no poll, one look at each turn.
    fn age(&mut self, certificate: &Certificate, place: &str, now: Timestamp) {
        let end = certificate.not_after;
        if end <= now {
            let message = format!("{place}: the certificate ended at {end}; renew it");
            return self.problems.push(problem(Weight::Degrades, CERTIFICATE_EXPIRED, message));
        }
        let before = |days: i64| end.checked_sub(SignedDuration::from_hours(24 * days)).unwrap_or(Timestamp::MIN);
        let turns = [before(30), before(7), end];
        self.revisit = turns.into_iter().find(|turn| *turn > now);
        let reason = match turns.iter().filter(|turn| **turn <= now).count() {
            0 => return,
            1 => EXPIRES_WITHIN_30_DAYS,
            _ => EXPIRES_WITHIN_7_DAYS,
        };
        self.problems.push(problem(Weight::Warns, reason, format!("{place}: the certificate ends at {end}; renew it")));
    }

    /// Adds the Secret, what is wrong with it and when that changes.
    #[must_use]
    pub fn add_to(self, name: &str, set: ChildSet<Desired>) -> ChildSet<Desired> {
        let mut set = set.with_each(self.secret);
        if self.stays {
            set = set.leaving::<Secret>(name);
        }
        if let Some(at) = self.revisit {
            set = set.revisit(at);
        }
        set.problems.extend(self.problems);
        set
    }
}

fn is_ours<W: Workload>(owner: &W, secret: &Summary) -> bool {
    matches!(&secret.owner, Owner::Controller { uid, .. } if owner.meta().uid.as_deref() == Some(uid))
}

fn problem(weight: Weight, reason: &'static str, message: String) -> Problem {
    Problem { weight, reason, message }
}

fn secret(name: &str, cert: &str, key: &str) -> Secret {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Secret {
        metadata: named(name),
        type_: Some("kubernetes.io/tls".into()),
        data: Some(BTreeMap::from([("tls.crt".into(), bytes(cert)), ("tls.key".into(), bytes(key))])),
        ..Secret::default()
    }
}
