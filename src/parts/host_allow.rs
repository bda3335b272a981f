//! PURE: which `Host` headers and origins MLflow answers to.
//!
//! Its default list lacks the names of Services, and giving a list replaces the default. A pattern is matched by
//! `fnmatch`, case-sensitively and with the port, so every name is listed bare and with any port.

use super::url::PublicUrl;

/// The private networks that pods usually have, as MLflow's own default.
#[must_use]
pub fn private_networks() -> Vec<String> {
    let mut networks = vec!["10.*".to_owned(), "192.168.*".to_owned()];
    networks.extend((16..=31).map(|second| format!("172.{second}.*")));
    networks
}

/// The value of `MLFLOW_SERVER_ALLOWED_HOSTS`.
#[must_use]
pub fn hosts(url: &PublicUrl, name: &str, namespace: &str, cluster_domain: &str, networks: &[String]) -> String {
    let names = [
        url.host.clone(),
        name.to_owned(),
        format!("{name}.{namespace}"),
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}.svc.{cluster_domain}"),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
    ];
    // `10.*` needs no second pattern: the star takes the port too.
    let patterns = names.into_iter().flat_map(|n| [format!("{n}:*"), n]).chain(networks.iter().cloned());
    let mut seen = Vec::new();
    for pattern in patterns {
        if !seen.contains(&pattern) {
            seen.push(pattern);
        }
    }
    seen.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_server_is_listed_bare_and_with_any_port_once() {
        let url = PublicUrl::parse("http://tracker:8080/team").map_err(str::to_owned);
        let listed = hosts(&url.unwrap(), "tracker", "team-a", "cluster.local", &["10.*".to_owned()]);
        let wanted = "tracker:*,tracker,tracker.team-a:*,tracker.team-a,tracker.team-a.svc:*,tracker.team-a.svc,\
                      tracker.team-a.svc.cluster.local:*,tracker.team-a.svc.cluster.local,\
                      localhost:*,localhost,127.0.0.1:*,127.0.0.1,10.*";
        assert_eq!(listed, wanted);
    }
}
