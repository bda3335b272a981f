//! PURE: Traefik's `IngressRoute` and `Middleware`: hand-written types with the fields that are written here.
//!
//! A rule is written from values that [`PublicUrl`](super::PublicUrl) has vetted, in double quotes. `PathPrefix("/p")`
//! would match `/pfoo` too, a neighbour's, so the exact path and everything below `/p/` are named instead.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::{Route, slash};
use crate::parts::service::named;

/// Spec of an `IngressRoute`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(group = "traefik.io", version = "v1alpha1", kind = "IngressRoute", namespaced, schema = "disabled")]
#[serde(rename_all = "camelCase")]
pub struct IngressRouteSpec {
    /// The ports of Traefik that serve it, by name.
    #[serde(default)]
    pub entry_points: Vec<String>,
    /// What goes where.
    pub routes: Vec<Rule>,
    /// Serves TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<RouteTls>,
}

/// One rule of an `IngressRoute`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Always `Rule`.
    pub kind: String,
    /// The expression.
    #[serde(rename = "match")]
    pub matcher: String,
    /// What a request passes on its way, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub middlewares: Vec<MiddlewareRef>,
    /// Where it goes.
    pub services: Vec<Target>,
}

/// Names a `Middleware` in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MiddlewareRef {
    /// Its name.
    pub name: String,
}

/// Names a port of a Service in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The Service.
    pub name: String,
    /// Name of its port.
    pub port: String,
}

/// The certificate of an `IngressRoute`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteTls {
    /// A Secret in the same namespace.
    pub secret_name: String,
}

/// Spec of a `Middleware`; one of the fields is set.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(group = "traefik.io", version = "v1alpha1", kind = "Middleware", namespaced, schema = "disabled")]
#[serde(rename_all = "camelCase")]
pub struct MiddlewareSpec {
    /// Cuts a prefix off the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strip_prefix: Option<StripPrefix>,
    /// Redirects by the whole URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_regex: Option<RedirectRegex>,
}

/// Cuts a prefix off the path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StripPrefix {
    /// The prefixes.
    pub prefixes: Vec<String>,
}

/// Redirects by the whole URL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RedirectRegex {
    /// What must match.
    pub regex: String,
    /// Where to.
    pub replacement: String,
    /// Browsers may remember it.
    pub permanent: bool,
}

/// For a URL with a path: one that adds the missing slash, one that strips the path if asked.
#[must_use]
pub fn middlewares(route: &Route<'_>) -> Vec<Middleware> {
    let prefix = route.url.prefix();
    if prefix.is_empty() {
        return Vec::new();
    }
    let redirect = RedirectRegex {
        regex: format!(r"^https?://[^/]+{}(\?.*)?$", route.url.path_pattern()),
        // Relative to what the client sees, whatever stands in front of Traefik: TLS, another port, another name.
        replacement: format!("{prefix}/${{1}}"),
        permanent: false,
    };
    let with = |name: &str, spec| Middleware { metadata: named(name), spec };
    let redirect = MiddlewareSpec { redirect_regex: Some(redirect), ..MiddlewareSpec::default() };
    let strip = StripPrefix { prefixes: vec![prefix] };
    let strip = MiddlewareSpec { strip_prefix: Some(strip), ..MiddlewareSpec::default() };
    let strip = route.strip.then(|| with(route.name, strip));
    [with(&slash(route.name), redirect)].into_iter().chain(strip).collect()
}

/// The route itself.
#[must_use]
pub fn ingress_route(route: &Route<'_>) -> IngressRoute {
    let entry_points = if route.tls.is_some() { &["websecure", "web"][..] } else { &["web"] };
    let rule = |matcher: String, middlewares: Vec<MiddlewareRef>| Rule {
        kind: "Rule".into(),
        matcher,
        middlewares,
        services: vec![Target { name: route.name.into(), port: route.port.into() }],
    };
    let passed =
        middlewares(route).into_iter().filter_map(|m| m.metadata.name).map(|name| MiddlewareRef { name }).collect();
    let mut routes = vec![rule(matcher(route), passed)];
    if !route.url.path.is_empty() && !route.root_paths.is_empty() {
        let paths: Vec<String> = route.root_paths.iter().map(|path| format!("PathPrefix({path:?})")).collect();
        routes.push(rule(format!("{} && ({})", host(route), paths.join(" || ")), Vec::new()));
    }
    IngressRoute {
        metadata: named(route.name),
        spec: IngressRouteSpec {
            entry_points: entry_points.iter().map(|&e| e.to_owned()).collect(),
            routes,
            tls: route.tls.map(|secret| RouteTls { secret_name: secret.to_owned() }),
        },
    }
}

fn matcher(route: &Route<'_>) -> String {
    let prefix = route.url.prefix();
    if prefix.is_empty() {
        host(route)
    } else {
        format!(r#"{} && (Path("{prefix}") || PathPrefix("{prefix}/"))"#, host(route))
    }
}

fn host(route: &Route<'_>) -> String {
    format!(r#"Host("{}")"#, route.url.host)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::claims::of_ingress_route;
    use crate::parts::url::PublicUrl;

    /// What a rule matches, as Traefik reads it: matchers with quoted arguments, `&&` before `||`, parentheses.
    #[derive(Debug, PartialEq)]
    enum Expression {
        Matcher(String, String),
        All(Vec<Expression>),
        Any(Vec<Expression>),
    }

    /// Reads alternatives; `None` when the text is not a rule. Leaves what follows.
    fn any(text: &str) -> Option<(Expression, &str)> {
        let (first, mut rest) = all(text)?;
        let mut found = vec![first];
        while let Some(after) = rest.trim_start().strip_prefix("||") {
            let (next, left) = all(after)?;
            found.push(next);
            rest = left;
        }
        Some((if found.len() == 1 { found.remove(0) } else { Expression::Any(found) }, rest))
    }

    fn all(text: &str) -> Option<(Expression, &str)> {
        let (first, mut rest) = one(text)?;
        let mut found = vec![first];
        while let Some(after) = rest.trim_start().strip_prefix("&&") {
            let (next, left) = one(after)?;
            found.push(next);
            rest = left;
        }
        Some((if found.len() == 1 { found.remove(0) } else { Expression::All(found) }, rest))
    }

    fn one(text: &str) -> Option<(Expression, &str)> {
        let text = text.trim_start();
        if let Some(inner) = text.strip_prefix('(') {
            let (expression, rest) = any(inner)?;
            return Some((expression, rest.trim_start().strip_prefix(')')?));
        }
        let (name, rest) = text.split_once("(\"")?;
        let (argument, rest) = rest.split_once('"')?;
        let plain = !name.is_empty() && name.chars().all(char::is_alphanumeric) && !argument.contains('\\');
        plain.then(|| Some((Expression::Matcher(name.into(), argument.into()), rest.strip_prefix(')')?)))?
    }

    fn route(url: &PublicUrl) -> Route<'_> {
        Route { name: "a", port: "server", number: 5000, url, tls: None, root_paths: &[], strip: true, gateway: None }
    }

    fn redirect(url: &PublicUrl) -> (regex::Regex, String) {
        let all = middlewares(&route(url));
        let spec = all.into_iter().find_map(|m| m.spec.redirect_regex).unwrap();
        (regex::Regex::new(&spec.regex).unwrap(), spec.replacement)
    }

    #[test]
    fn the_missing_slash_is_added_and_the_query_kept() {
        let url = PublicUrl::parse("https://ml.example.com/team/a.b").unwrap();
        let (regex, replacement) = redirect(&url);
        let to = |from: &str| regex.replace(from, replacement.as_str()).into_owned();
        assert_eq!(to("http://10.0.0.1:32080/team/a.b"), "/team/a.b/");
        assert_eq!(to("https://ml.example.com/team/a.b?x=1&y=/"), "/team/a.b/?x=1&y=/");
        for other in ["https://h/team/a.b/", "https://h/team/a.bc", "https://h/team/axb", "https://h/x/team/a.b"] {
            assert!(!regex.is_match(other), "{other}");
        }
    }

    /// Hosts and paths of all kinds: any characters, those that a rule is made of, and sensible ones.
    fn some_url() -> impl Strategy<Value = String> {
        let host = prop_oneof!["\\PC{1,16}", "[a-z.`\"\\\\()|&]{1,16}", "[a-zA-Z0-9.-]{1,16}"];
        let path = prop_oneof![
            "(/\\PC{0,12}){0,3}",
            "(/[a-z`\"\\\\()|& .+$%-]{0,8}){0,3}",
            "(/[a-zA-Z0-9._~+:@,=!-]{0,8}){0,3}"
        ];
        (host, path).prop_map(|(host, path)| format!("http://{host}{path}"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]

        #[test]
        fn no_url_changes_what_a_rule_consists_of(url in some_url()) {
            let Ok(url) = PublicUrl::parse(&url) else { return Ok(()) };
            let made = ingress_route(&route(&url));
            prop_assert_eq!(made.spec.routes.len(), 1);
            let rule = &made.spec.routes[0].matcher;
            let Some((read, "")) = any(rule) else { return Err(TestCaseError::fail(rule.clone())) };
            let matcher = |name: &str, argument: String| Expression::Matcher(name.into(), argument);
            let (host, prefix) = (matcher("Host", url.host.clone()), url.prefix());
            let wanted = if prefix.is_empty() { host } else {
                let paths = vec![matcher("Path", prefix.clone()), matcher("PathPrefix", format!("{prefix}/"))];
                Expression::All(vec![host, Expression::Any(paths)])
            };
            prop_assert_eq!(read, wanted);
            let claims = of_ingress_route(&serde_json::json!({ "spec": made.spec }));
            prop_assert_eq!(&*claims, &[url.claim()]);
        }
    }

    proptest! {
        #[test]
        fn only_the_exact_path_is_redirected(url in some_url()) {
            let Ok(url) = PublicUrl::parse(&url) else { return Ok(()) };
            let prefix = url.prefix();
            if !prefix.is_empty() {
                let (regex, _) = redirect(&url);
                prop_assert!(regex.is_match(&format!("https://h:1{prefix}?q")), "{}", regex);
                prop_assert!(!regex.is_match(&format!("https://h:1{prefix}x")), "{}", regex);
            }
        }
    }
}
