//! PURE: which hosts the resources of a namespace may name.
//!
//! An annotation of the namespace, which tenants cannot change, binds it. Like a claim it is about the whole host: a
//! resource whose host is not allowed claims nothing and has no route, so it cannot keep the place from its rightful owner.

use super::claims::Claim;

/// The annotation of a namespace: hosts, separated by commas. `ml.example.com` is that host, `.team-a.example.com` (or
/// `*.team-a.example.com`) every host below it, `*` any.
pub const ANNOTATION: &str = "aiscope.io/allowed-hosts";

/// Hosts that may be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Any,
    Exact(Box<str>),
    Below(Box<str>),
}

impl Default for Hosts {
    /// Any host.
    fn default() -> Self {
        Self(vec![Pattern::Any])
    }
}

impl Hosts {
    /// Reads the annotation's value. What is no host allows nothing.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        Self(entries.filter_map(Pattern::read).collect())
    }

    /// Whether `host` (as in a [`Claim`]) is among them.
    #[must_use]
    pub fn allow(&self, host: &str) -> bool {
        self.0.iter().any(|pattern| match pattern {
            Pattern::Any => true,
            Pattern::Exact(name) => **name == *host,
            // A whole label at least, and no address: nothing is below `.1`.
            Pattern::Below(name) => {
                host.strip_suffix(&**name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
                    && host.parse::<std::net::Ipv4Addr>().is_err()
            }
        })
    }
}

impl Pattern {
    fn read(entry: &str) -> Option<Self> {
        let normal = |name: &str| Some(Claim::new(name, "").host).filter(|host| !host.is_empty());
        if entry == "*" {
            return Some(Self::Any);
        }
        match entry.strip_prefix("*.").or_else(|| entry.strip_prefix('.')) {
            Some(name) => normal(name).map(Self::Below),
            None => normal(entry).map(Self::Exact),
        }
    }
}

impl std::fmt::Display for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |pattern: &Pattern| match pattern {
            Pattern::Any => "*".to_owned(),
            Pattern::Exact(name) => name.to_string(),
            Pattern::Below(name) => format!(".{name}"),
        };
        let all: Vec<String> = self.0.iter().map(text).collect();
        f.write_str(if all.is_empty() { "none" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allows(annotation: &str, host: &str) -> bool {
        Hosts::read(annotation).allow(&Claim::new(host, "").host)
    }

    #[test]
    fn a_suffix_ends_at_a_label() {
        let rows = [
            (".team-a.example.com", "ml.team-a.example.com", true),
            (".team-a.example.com", "x.ml.team-a.example.com", true),
            ("*.team-a.example.com", "ml.team-a.example.com", true),
            (".team-a.example.com", "team-a.example.com", false),
            (".team-a.example.com", "evilteam-a.example.com", false),
            ("team-a.example.com", "evilteam-a.example.com", false),
            ("team-a.example.com", "ml.team-a.example.com", false),
            (" A.example.com. , .B.example.com", "a.EXAMPLE.com.:8443", true),
            ("bücher.example", "xn--bcher-kva.example", true),
            ("*", "anything.example", true),
            ("", "anything.example", false),
            (".", "anything.example", false),
            ("*.", "anything.example", false),
            (".0.0.1", "127.0.0.1", false),
            ("127.0.0.1", "127.0.0.1", true),
        ];
        for (annotation, host, allowed) in rows {
            assert_eq!(allows(annotation, host), allowed, "{annotation:?} {host}");
        }
    }

    proptest! {
        #[test]
        fn a_host_is_allowed_exactly_when_its_last_labels_are_the_suffix_and_one_more_is_before(
            suffix in prop::collection::vec("[ab]{1,2}", 1..4), host in prop::collection::vec("[ab]{1,2}", 1..5),
        ) {
            let below = host.len() > suffix.len() && host.ends_with(&suffix);
            prop_assert_eq!(allows(&format!(".{}", suffix.join(".")), &host.join(".")), below);
            prop_assert_eq!(allows(&suffix.join("."), &host.join(".")), host == suffix);
        }

        #[test]
        fn no_text_makes_it_panic(annotation in "\\PC{0,40}", host in "\\PC{0,20}") {
            allows(&annotation, &host);
        }
    }
}
