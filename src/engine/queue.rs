//! PURE: which resource is reconciled next.
//!
//! *Guarantees.* A resource is in the queue at most once and never runs twice at the same time; a wake-up during a run
//! is kept and runs after it; of two times the earlier wins. Namespaces take turns, so that one tenant's thousand
//! resources do not hold up another's one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// A resource of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its parts.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Debug)]
enum State {
    Waiting(Instant, u64),
    /// Since then.
    Ready(Instant),
    Running {
        again: Option<Instant>,
    },
}

/// The queue of one controller.
#[derive(Debug, Default)]
pub struct Queue {
    states: HashMap<Key, State>,
    waiting: BTreeMap<(Instant, u64), Key>,
    turns: VecDeque<Arc<str>>,
    ready: HashMap<Arc<str>, VecDeque<Key>>,
    counter: u64,
    added: u64,
}

/// Where a resource stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is wanted later.
    Waiting,
    /// It is due.
    Due,
    /// It runs.
    Running,
}

impl Queue {
    /// Wants `key` to run at `at`, or earlier if it is queued for earlier.
    pub fn add(&mut self, key: Key, at: Instant) {
        match self.states.get_mut(&key) {
            Some(State::Ready(_)) => return,
            Some(State::Waiting(when, _)) if *when <= at => return,
            Some(State::Running { again }) => {
                *again = Some(again.map_or(at, |other| other.min(at)));
                return;
            }
            Some(State::Waiting(when, id)) => drop(self.waiting.remove(&(*when, *id))),
            None => {}
        }
        self.counter += 1;
        self.waiting.insert((at, self.counter), key.clone());
        self.states.insert(key, State::Waiting(at, self.counter));
    }

    /// The next resource to run, and since when it has been due.
    ///
    /// # Errors
    /// The time of the next one, if there is one, when none is due.
    pub fn next(&mut self, now: Instant) -> Result<(Key, Instant), Option<Instant>> {
        while let Some(entry) = self.waiting.first_entry().filter(|e| e.key().0 <= now) {
            let ((at, _), key) = entry.remove_entry();
            let line = self.ready.entry(key.namespace.clone()).or_default();
            if line.is_empty() {
                self.turns.push_back(key.namespace.clone());
            }
            line.push_back(key.clone());
            self.added += 1;
            self.states.insert(key, State::Ready(at));
        }
        let Some(namespace) = self.turns.pop_front() else {
            return Err(self.waiting.first_key_value().map(|((at, _), _)| *at));
        };
        let line = self.ready.entry(namespace.clone()).or_default();
        let key = line.pop_front();
        if line.is_empty() {
            self.ready.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        // A line is in `turns` only while it has a key.
        let Some(key) = key else { return self.next(now) };
        let due = match self.states.insert(key.clone(), State::Running { again: None }) {
            Some(State::Ready(at)) => at,
            _ => now,
        };
        Ok((key, due))
    }

    /// A run has ended; `again` is when the next one is wanted, unless a wake-up came meanwhile.
    pub fn done(&mut self, key: &Key, again: Option<Instant>) {
        if let Some(State::Running { again: woken }) = self.states.remove(key)
            && let Some(at) = woken.into_iter().chain(again).min()
        {
            self.add(key.clone(), at);
        }
    }

    /// How many are due, those included that nobody has asked for yet.
    #[must_use]
    pub fn depth(&self, now: Instant) -> usize {
        self.ready.values().map(VecDeque::len).sum::<usize>() + self.waiting.range(..=(now, u64::MAX)).count()
    }

    /// How often a resource became due.
    #[must_use]
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Where a resource stands.
    #[must_use]
    pub fn place(&self, key: &Key, now: Instant) -> Option<Place> {
        self.states.get(key).map(|state| match state {
            State::Waiting(at, _) if *at > now => Place::Waiting,
            State::Waiting(..) | State::Ready(_) => Place::Due,
            State::Running { .. } => Place::Running,
        })
    }

    /// Nothing waits, is ready, or runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn drain(queue: &mut Queue, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| queue.next(now).ok()).map(|(k, _)| k.to_string()).collect()
    }

    #[test]
    fn namespaces_take_turns() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for name in ["1", "2", "3"] {
            queue.add(Key::new("many", name), now);
        }
        queue.add(Key::new("few", "1"), now);
        assert_eq!(drain(&mut queue, now), ["many/1", "few/1", "many/2", "many/3"]);
    }

    #[test]
    fn a_wake_up_during_a_run_runs_after_it_and_never_beside_it() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let key = Key::new("ns", "a");
        queue.add(key.clone(), now);
        assert_eq!(queue.next(now), Ok((key.clone(), now)));
        queue.add(key.clone(), now);
        assert_eq!(queue.next(now), Err(None));
        queue.done(&key, Some(now + Duration::from_mins(10)));
        assert_eq!(queue.next(now), Ok((key.clone(), now)));
        queue.done(&key, None);
        assert!(queue.is_empty());
    }

    #[test]
    fn of_two_times_the_earlier_wins() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (key, soon, late) = (Key::new("ns", "a"), now + Duration::from_secs(1), now + Duration::from_secs(9));
        queue.add(key.clone(), late);
        queue.add(key.clone(), soon);
        queue.add(key.clone(), late);
        assert_eq!(queue.next(now), Err(Some(soon)));
        assert_eq!(queue.next(late), Ok((key, soon)));
        assert_eq!(queue.next(late), Err(None));
    }
}
