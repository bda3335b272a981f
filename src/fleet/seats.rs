//! SHELL: one operator on a cluster at a time, whatever names it goes by.
//!
//! A cluster is known by the uid of its namespace `kube-system`. Of several `Cluster`s that lead to it the oldest may run;
//! it starts only when the others have stopped.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Who asks for a seat: creation in seconds, uid and name. The smallest is the oldest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant {
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// Its uid.
    pub uid: String,
    /// Its name, for messages.
    pub name: String,
}

impl Claimant {
    /// This operator in the cluster that it runs for: older than all.
    #[must_use]
    pub fn hub() -> Self {
        Self { created: i64::MIN, uid: String::new(), name: "this operator's own cluster".into() }
    }
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seat {
    /// It may start, and is entered as running.
    Taken,
    /// An older one has it.
    Refused(String),
    /// A younger one is about to stop; it is told when that has happened.
    Awaited(String),
}

/// All seats of a fleet.
#[derive(Clone, Default)]
pub struct Seats(Arc<Inner>);

struct Inner {
    /// By cluster: who claims it, and whether he runs.
    claims: Mutex<HashMap<String, BTreeMap<Claimant, bool>>>,
    changed: watch::Sender<u64>,
}

impl Default for Inner {
    fn default() -> Self {
        Self { claims: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Seats {
    fn claims(&self) -> MutexGuard<'_, HashMap<String, BTreeMap<Claimant, bool>>> {
        self.0.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Asks to run in a cluster.
    #[must_use]
    pub fn take(&self, cluster: &str, me: &Claimant) -> Seat {
        let mut claims = self.claims();
        let here = claims.entry(cluster.into()).or_default();
        if let Some((oldest, _)) = here.first_key_value().filter(|(oldest, _)| *oldest < me) {
            return Seat::Refused(oldest.name.clone());
        }
        if let Some((other, _)) = here.iter().find(|(other, runs)| **runs && *other != me) {
            let awaited = Seat::Awaited(other.name.clone());
            if here.insert(me.clone(), false).is_none() {
                self.0.changed.send_modify(|n| *n += 1);
            }
            return awaited;
        }
        here.insert(me.clone(), true);
        Seat::Taken
    }

    /// The older one that wants the cluster in which `me` runs.
    #[must_use]
    pub fn heir(&self, cluster: &str, me: &Claimant) -> Option<String> {
        let claims = self.claims();
        let (oldest, _) = claims.get(cluster)?.first_key_value()?;
        (oldest < me).then(|| oldest.name.clone())
    }

    /// Gives up a seat or a claim, after the last request. Nobody else's is touched.
    pub fn leave(&self, cluster: &str, me: &Claimant) {
        let mut claims = self.claims();
        let Some(here) = claims.get_mut(cluster) else { return };
        let had = here.remove(me).is_some();
        if here.is_empty() {
            claims.remove(cluster);
        }
        if had {
            self.0.changed.send_modify(|n| *n += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(created: i64) -> Claimant {
        Claimant { created, uid: created.to_string(), name: format!("c{created}") }
    }

    #[test]
    fn the_older_one_starts_only_when_the_younger_has_stopped() {
        let (seats, old, young) = (Seats::default(), named(1), named(2));
        assert_eq!(seats.take("x", &young), Seat::Taken);
        assert_eq!(seats.take("x", &old), Seat::Awaited("c2".into()));
        assert_eq!(seats.heir("x", &young).as_deref(), Some("c1"));
        seats.leave("x", &young);
        assert_eq!(seats.take("x", &young), Seat::Refused("c1".into()), "the place is kept for the older one");
        assert_eq!(seats.take("x", &old), Seat::Taken);
        seats.leave("x", &old);
        assert_eq!(seats.take("x", &young), Seat::Taken);
    }

    #[test]
    fn the_hub_is_older_than_all() {
        let seats = Seats::default();
        assert_eq!(seats.take("hub", &Claimant::hub()), Seat::Taken);
        assert!(matches!(seats.take("hub", &named(-5)), Seat::Refused(_)));
        assert_eq!(seats.take("other", &named(5)), Seat::Taken);
    }
}
