//! PURE: who may serve which part of the URL space.
//!
//! Nothing in Kubernetes stops one tenant from claiming another's host, and Traefik lets the longest rule win. So every
//! resource claims (host, path prefix), and of two claims that overlap the older holds: by creation time, then by uid.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

/// A part of the URL space: everything below a path on a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// Lower case, no trailing dot, no port, IDNA's ASCII form.
    pub host: Box<str>,
    /// The segments of the path; empty for the whole host.
    pub path: Box<[Box<str>]>,
}

impl Claim {
    /// A claim on `path` (`/a/b`, with or without slash at the end) of `host` (normalised here).
    #[must_use]
    pub fn new(host: &str, path: &str) -> Self {
        let bare =
            host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(h, _)| h);
        let bare = bare.trim_end_matches('.');
        let host = url::Host::parse(bare).map_or_else(|_| bare.to_ascii_lowercase(), |h| h.to_string());
        Self { host: host.into(), path: path.split('/').filter(|s| !s.is_empty()).map(Into::into).collect() }
    }
}

/// Who claims: older ones sort first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claimant {
    /// `creationTimestamp`, seconds since the epoch.
    pub created: i64,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `Kind namespace/name`.
    pub name: Box<str>,
}

/// The older claimant that holds an overlapping part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// `Kind namespace/name` of the holder.
    pub holder: Box<str>,
}

/// All claims, by host and path. A decision costs O(depth × log n).
#[derive(Debug, Default)]
pub struct Claims {
    hosts: HashMap<Box<str>, Node>,
    held: HashMap<Box<str>, (Claimant, BTreeSet<Claim>)>,
}

#[derive(Debug, Default)]
struct Node {
    here: BTreeSet<Claimant>,
    /// Everyone at or below this node, with how often.
    subtree: BTreeMap<Claimant, usize>,
    below: HashMap<Box<str>, Node>,
}

impl Claims {
    /// Makes `claimant`'s claims exactly `claims`. Returns whether anything changed.
    pub fn set(&mut self, claimant: &Claimant, claims: BTreeSet<Claim>) -> bool {
        if self.held.get(&claimant.uid).map_or(claims.is_empty(), |(c, held)| c == claimant && *held == claims) {
            return false;
        }
        self.remove(&claimant.uid);
        for claim in &claims {
            self.hosts.entry(claim.host.clone()).or_default().insert(&claim.path, claimant);
        }
        if !claims.is_empty() {
            self.held.insert(claimant.uid.clone(), (claimant.clone(), claims));
        }
        true
    }

    /// Drops all claims of a claimant.
    pub fn remove(&mut self, uid: &str) -> bool {
        let Some((claimant, claims)) = self.held.remove(uid) else { return false };
        for claim in claims {
            if let Some(node) = self.hosts.get_mut(&claim.host) {
                node.remove(&claim.path, &claimant);
                if node.subtree.is_empty() {
                    self.hosts.remove(&claim.host);
                }
            }
        }
        true
    }

    /// The oldest overlapping claimant that is older than `claimant`, if there is one.
    #[must_use]
    pub fn conflict(&self, claimant: &Claimant, claim: &Claim) -> Option<Conflict> {
        let mut node = self.hosts.get(&claim.host)?;
        let mut oldest: Option<&Claimant> = None;
        for segment in &claim.path {
            oldest = oldest.into_iter().chain(node.here.first()).min();
            match node.below.get(segment) {
                Some(next) => node = next,
                None => return older(oldest, claimant),
            }
        }
        older(oldest.into_iter().chain(node.subtree.keys().next()).min(), claimant)
    }

    /// The uids of all who claim something of these hosts: whose decision may change when a claim there does.
    #[must_use]
    pub fn on_host(&self, host: &str) -> Vec<Box<str>> {
        self.hosts.get(host).map(|n| n.subtree.keys().map(|c| c.uid.clone()).collect()).unwrap_or_default()
    }

    /// The claims of a claimant.
    #[must_use]
    pub fn of(&self, uid: &str) -> Option<&BTreeSet<Claim>> {
        self.held.get(uid).map(|(_, claims)| claims)
    }
}

fn older(other: Option<&Claimant>, claimant: &Claimant) -> Option<Conflict> {
    other.filter(|other| *other < claimant).map(|other| Conflict { holder: other.name.clone() })
}

impl Node {
    fn insert(&mut self, path: &[Box<str>], claimant: &Claimant) {
        *self.subtree.entry(claimant.clone()).or_default() += 1;
        match path.split_first() {
            None => drop(self.here.insert(claimant.clone())),
            Some((first, rest)) => self.below.entry(first.clone()).or_default().insert(rest, claimant),
        }
    }

    fn remove(&mut self, path: &[Box<str>], claimant: &Claimant) {
        if let Some(count) = self.subtree.get_mut(claimant) {
            *count -= 1;
            if *count == 0 {
                self.subtree.remove(claimant);
            }
        }
        match path.split_first() {
            None => drop(self.here.remove(claimant)),
            Some((first, rest)) => {
                if let Some(next) = self.below.get_mut(first) {
                    next.remove(rest, claimant);
                    if next.subtree.is_empty() {
                        self.below.remove(first);
                    }
                }
            }
        }
    }
}

/// What an Ingress serves. A path that is a pattern counts with its literal part.
#[must_use]
pub fn of_ingress(data: &Value) -> Box<[Claim]> {
    let mut claims = BTreeSet::new();
    for rule in data["spec"]["rules"].as_array().into_iter().flatten() {
        let host = rule["host"].as_str().unwrap_or_default();
        for path in rule["http"]["paths"].as_array().into_iter().flatten() {
            claims.insert(Claim::new(host, &literal(path["path"].as_str().unwrap_or("/"))));
        }
    }
    claims.into_iter().collect()
}

/// What an `HTTPRoute` serves: every host with the path of every match; without a match, the whole host.
#[must_use]
pub fn of_http_route(data: &Value) -> Box<[Claim]> {
    let mut paths = BTreeSet::new();
    for rule in data["spec"]["rules"].as_array().into_iter().flatten() {
        let matches = rule["matches"].as_array().filter(|matches| !matches.is_empty());
        let values = matches.into_iter().flatten().map(|one| {
            let value = one["path"]["value"].as_str().unwrap_or("/");
            if one["path"]["type"] == "RegularExpression" { literal(value) } else { value.to_owned() }
        });
        paths.extend(values);
        paths.extend(matches.is_none().then(|| "/".to_owned()));
    }
    let hosts = data["spec"]["hostnames"].as_array().into_iter().flatten().filter_map(Value::as_str);
    hosts
        .flat_map(|host| paths.iter().map(|path| Claim::new(host, path)))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// The part of an ingress-nginx path before the first segment with a character of a pattern; an escaped one is itself.
fn literal(path: &str) -> String {
    let mut literal = String::with_capacity(path.len());
    let mut rest = path.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' if rest.as_str().starts_with(|c: char| c.is_ascii_punctuation()) => literal.extend(rest.next()),
            '(' | '[' | '{' | '^' | '$' | '*' | '+' | '?' | '|' | '\\' => {
                let whole = c == '$' && rest.as_str().is_empty() || c == '(' && rest.as_str().starts_with("/|$)");
                if !whole {
                    literal.truncate(literal.rfind('/').unwrap_or(0));
                }
                return literal;
            }
            plain => literal.push(plain),
        }
    }
    literal
}

/// What an `IngressRoute` serves: its `Host` and `PathPrefix` matchers, every host with every path of a rule.
#[must_use]
pub fn of_ingress_route(data: &Value) -> Box<[Claim]> {
    let mut claims = BTreeSet::new();
    for route in data["spec"]["routes"].as_array().into_iter().flatten() {
        let rule = route["match"].as_str().unwrap_or_default();
        let hosts = arguments(rule, "Host(");
        let mut paths = arguments(rule, "PathPrefix(");
        paths.extend(arguments(rule, "Path("));
        if paths.is_empty() {
            paths.push("/".into());
        }
        for host in &hosts {
            claims.extend(paths.iter().map(|path| Claim::new(host, path)));
        }
    }
    claims.into_iter().collect()
}

/// The quoted arguments of every `matcher` in a Traefik rule (backquotes or double quotes).
fn arguments(rule: &str, matcher: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in rule.match_indices(matcher) {
        // `Host(` is also the end of `HeaderHost(`: a matcher starts a word.
        if rule[..at].ends_with(|c: char| c.is_ascii_alphanumeric()) {
            continue;
        }
        let rest = rule[at + matcher.len()..].trim_start();
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '`' | '"')) else { continue };
        if let Some((argument, _)) = rest[1..].split_once(quote) {
            found.push(argument.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claimant(created: i64, uid: &str) -> Claimant {
        Claimant { created, uid: uid.into(), name: uid.into() }
    }

    /// The rule as the contract words it, over all pairs.
    fn overlaps(a: &Claim, b: &Claim) -> bool {
        a.host == b.host && a.path.iter().zip(&b.path).all(|(x, y)| x == y)
    }

    fn some_claim() -> impl Strategy<Value = Claim> {
        ("[ab]", prop::collection::vec("[xyz]", 0..4)).prop_map(|(host, path)| Claim::new(&host, &path.join("/")))
    }

    proptest! {
        #[test]
        fn the_table_decides_as_a_look_at_all_pairs_does(
            steps in prop::collection::vec((0..8usize, 0..3i64, prop::option::weighted(0.8, some_claim())), 1..40),
            asked in some_claim(), asker in (0..3i64, 0..8usize),
        ) {
            let mut table = Claims::default();
            let mut all: std::collections::BTreeMap<usize, (Claimant, Claim)> = std::collections::BTreeMap::new();
            for (who, created, claim) in steps {
                let claimant = claimant(created, &who.to_string());
                table.set(&claimant, claim.clone().into_iter().collect());
                all.remove(&who);
                if let Some(claim) = claim {
                    all.insert(who, (claimant, claim));
                }
            }
            let asker = claimant(asker.0, &asker.1.to_string());
            let older = all.values().filter(|(c, claim)| *c < asker && overlaps(claim, &asked)).map(|(c, _)| c).min();
            prop_assert_eq!(table.conflict(&asker, &asked).map(|c| c.holder), older.map(|c| c.name.clone()));
            for who in all.keys() {
                table.remove(&who.to_string());
            }
            prop_assert!(table.hosts.is_empty() && table.held.is_empty());
        }
    }

    #[test]
    fn a_host_is_the_same_in_every_spelling() {
        for spelling in ["ML.Example.com", "ml.example.com.", "ml.example.com:8443"] {
            assert_eq!(Claim::new(spelling, "/a/"), Claim::new("ml.example.com", "/a"), "{spelling}");
        }
        assert_eq!(Claim::new("bücher.example", ""), Claim::new("xn--bcher-kva.example", "/"));
        assert_ne!(Claim::new("h", "/a"), Claim::new("h", "/ab"));
    }

    #[test]
    fn a_rule_of_traefik_claims_every_host_with_every_path() {
        let rule = |text: &str| serde_json::json!({ "spec": { "routes": [{ "match": text }] } });
        let claims = of_ingress_route(&rule("(Host(`a`) || Host(\"b\")) && PathPrefix(`/x`) && !HeaderHost(`c`)"));
        assert_eq!(*claims, [Claim::new("a", "/x"), Claim::new("b", "/x")]);
        assert_eq!(*of_ingress_route(&rule("Host(`a`)")), [Claim::new("a", "/")]);
    }
}
