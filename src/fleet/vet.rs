//! PURE: judges a kubeconfig before anything is done with it.
//!
//! A kubeconfig may run programs, read files of the operator's pod and send its credentials elsewhere. Whoever may write a
//! `Cluster` must not get any of that. Only the current context is kept; nothing of the content is in any message, because
//! a parser's words quote what they stumble over.

use k8s_openapi::jiff::Timestamp;
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use secrecy::ExposeSecret;

use super::lifetime::{Lifetime, base64};
use crate::engine::certificate::Certificate;
use crate::engine::reason;
use crate::engine::workload::Blocked;

/// A larger kubeconfig is none; etcd takes no object of more than 1.5 MiB.
const LIMIT: usize = 256 * 1024;
const NAME: &str = "member";

/// A kubeconfig that may be used: one cluster, one user, one context, all inline.
pub struct Vetted {
    /// It.
    pub kubeconfig: Kubeconfig,
    /// When its credentials end, if that can be told.
    pub lifetime: Option<Lifetime>,
}

/// Judges a kubeconfig.
///
/// # Errors
/// What is wrong with it, with a reason of its own and a remedy, and nothing of its content.
pub fn vet(bytes: &[u8], allow_proxies: bool, now: Timestamp) -> Result<Vetted, Blocked> {
    let invalid = |what: &str| Blocked::new(reason::KUBECONFIG_INVALID, format!("the kubeconfig {what}"));
    if bytes.len() > LIMIT {
        return Err(invalid(
            "has more than 256 KiB: give one that holds this cluster alone (`kubectl config view --minify --flatten`)",
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("is not text: encode the file itself, once"))?;
    let parsed: Kubeconfig = serde_saphyr::from_str(text).map_err(|_| {
        invalid("is not a kubeconfig in YAML: give what `kubectl config view --minify --flatten --raw` prints")
    })?;
    let context = current(&parsed)?;
    let cluster = parsed.clusters.iter().find(|c| c.name == context.cluster).and_then(|c| c.cluster.clone());
    let cluster = cluster.ok_or_else(|| invalid("names a cluster in its current context that it does not hold"))?;
    let user = parsed.auth_infos.iter().find(|u| Some(&u.name) == context.user.as_ref());
    let user = user.and_then(|u| u.auth_info.clone());
    let user = user.ok_or_else(|| invalid("names a user in its current context that it does not hold"))?;
    vet_cluster(&cluster, allow_proxies)?;
    vet_user(&user)?;
    let lifetime = credentials(&user, now)?;
    let context = Context { cluster: NAME.into(), user: Some(NAME.into()), ..Context::default() };
    let kubeconfig = Kubeconfig {
        clusters: vec![NamedCluster { name: NAME.into(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo { name: NAME.into(), auth_info: Some(user), ..NamedAuthInfo::default() }],
        contexts: vec![NamedContext { name: NAME.into(), context: Some(context), ..NamedContext::default() }],
        current_context: Some(NAME.into()),
        ..Kubeconfig::default()
    };
    Ok(Vetted { kubeconfig, lifetime })
}

/// The current context, or the only one.
fn current(kubeconfig: &Kubeconfig) -> Result<&Context, Blocked> {
    let named = kubeconfig.current_context.as_deref().filter(|name| !name.is_empty());
    let found = match (named, kubeconfig.contexts.as_slice()) {
        (Some(name), all) => all.iter().find(|c| c.name == name),
        (None, [only]) => Some(only),
        (None, []) => None,
        (None, _) => {
            let message = "the kubeconfig has several contexts and no current-context: name the one that is meant";
            return Err(Blocked::new(reason::KUBECONFIG_NO_CONTEXT, message));
        }
    };
    found.and_then(|c| c.context.as_ref()).ok_or_else(|| {
        Blocked::new(
            reason::KUBECONFIG_INVALID,
            "the kubeconfig does not hold its current context: name one that it holds",
        )
    })
}

fn given(field: Option<&String>) -> bool {
    field.is_some_and(|text| !text.is_empty())
}

fn vet_cluster(cluster: &Cluster, allow_proxies: bool) -> Result<(), Blocked> {
    if cluster.insecure_skip_tls_verify == Some(true) {
        let message = "the kubeconfig has insecure-skip-tls-verify: give certificate-authority-data instead";
        return Err(Blocked::new(reason::KUBECONFIG_INSECURE, message));
    }
    if given(cluster.certificate_authority.as_ref()) {
        let message = "the kubeconfig has certificate-authority, a file: give certificate-authority-data instead";
        return Err(Blocked::new(reason::KUBECONFIG_CA_FILE, message));
    }
    if given(cluster.proxy_url.as_ref()) && !allow_proxies {
        let message = "the kubeconfig has proxy-url: remove it, or run the operator with --allow-member-proxies";
        return Err(Blocked::new(reason::KUBECONFIG_PROXY, message));
    }
    let invalid = |message: &str| Err(Blocked::new(reason::KUBECONFIG_INVALID, message));
    let server = cluster.server.as_deref().unwrap_or_default();
    match url::Url::parse(server) {
        Ok(url) if url.scheme() == "http" => {
            let message =
                "the kubeconfig's server is http: give an https address, credentials do not travel in the clear";
            return Err(Blocked::new(reason::KUBECONFIG_INSECURE, message));
        }
        Ok(url)
            if url.scheme() == "https"
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
                && server.parse::<http::Uri>().is_ok() => {}
        _ => {
            return invalid(
                "the kubeconfig's server is no address: give https://, a host, and at most a port and a path",
            );
        }
    }
    let ca = cluster.certificate_authority_data.as_deref().filter(|text| !text.is_empty());
    if ca.is_some_and(|ca| base64(ca).is_none_or(|pem| !all_certificates(&pem))) {
        return invalid("the kubeconfig's certificate-authority-data is not PEM in base64: copy it once more");
    }
    Ok(())
}

fn all_certificates(pem: &[u8]) -> bool {
    let mut found = CertificateDer::pem_slice_iter(pem).peekable();
    found.peek().is_some() && found.all(|certificate| certificate.is_ok())
}

fn vet_user(user: &AuthInfo) -> Result<(), Blocked> {
    let refused = [
        (user.exec.is_some(), reason::KUBECONFIG_EXEC, "exec, a program to run"),
        (user.auth_provider.is_some(), reason::KUBECONFIG_AUTH_PROVIDER, "auth-provider, a plugin"),
        (given(user.token_file.as_ref()), reason::KUBECONFIG_TOKEN_FILE, "tokenFile, a file"),
        (given(user.client_certificate.as_ref()), reason::KUBECONFIG_CERTIFICATE_FILE, "client-certificate, a file"),
        (given(user.client_key.as_ref()), reason::KUBECONFIG_KEY_FILE, "client-key, a file"),
        (
            given(user.username.as_ref()) || user.password.is_some(),
            reason::KUBECONFIG_BASIC_AUTH,
            "a user name and password",
        ),
    ];
    match refused.into_iter().find(|(is, ..)| *is) {
        Some((_, reason, what)) => {
            let remedy = "give a token, or client-certificate-data and client-key-data, instead";
            Err(Blocked::new(reason, format!("the kubeconfig's user has {what}: {remedy}")))
        }
        None => Ok(()),
    }
}

/// Checks the credentials themselves, and tells when they end.
fn credentials(user: &AuthInfo, now: Timestamp) -> Result<Option<Lifetime>, Blocked> {
    let bad = |message: String| Blocked::new(reason::KUBECONFIG_CREDENTIALS, message);
    let token = user.token.as_ref().map(ExposeSecret::expose_secret).filter(|token| !token.is_empty());
    let certificate = user.client_certificate_data.as_deref().filter(|data| !data.is_empty());
    let key = user.client_key_data.as_ref().map(ExposeSecret::expose_secret).filter(|data| !data.is_empty());
    let of_certificate = match (certificate, key) {
        (None, None) if token.is_none() => {
            return Err(bad(
                "the kubeconfig's user has no credentials: give a token, or a client certificate and its key".into(),
            ));
        }
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            let decoded = base64(certificate).zip(base64(key));
            let (certificate, key) = decoded.ok_or_else(|| {
                bad("the kubeconfig's client certificate or key is not base64: copy them once more".into())
            })?;
            Certificate::parse(&certificate, &key)
                .map_err(|words| bad(format!("of the kubeconfig's client certificate: {words}")))?;
            Lifetime::of_certificate(&certificate)
        }
        _ => {
            return Err(bad(
                "the kubeconfig's user has only one of client-certificate-data and client-key-data: give both".into(),
            ));
        }
    };
    if token.is_some_and(|token| !token.bytes().all(|b| b.is_ascii_graphic())) {
        return Err(bad("the kubeconfig's token has characters that no token has: copy it once more".into()));
    }
    let lifetime = [of_certificate, token.and_then(Lifetime::of_token)].into_iter().flatten().min_by_key(|l| l.ends);
    match lifetime {
        Some(lifetime) if lifetime.ends <= now => {
            Err(bad(format!("the kubeconfig's credentials ended at {}: give new ones", lifetime.ends)))
        }
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "s3cr3t-t0ken";

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n"
        )
    }

    fn judged(text: &str) -> Result<Vetted, Blocked> {
        vet(text.as_bytes(), false, Timestamp::UNIX_EPOCH)
    }

    const SERVER: &str = "server: 'https://10.0.0.1:6443'";
    const TOKEN: &str = "token: s3cr3t-t0ken";

    #[test]
    fn a_plain_kubeconfig_is_good_and_its_token_tells_no_end() {
        let vetted = judged(&config(SERVER, TOKEN)).ok().unwrap();
        assert_eq!(vetted.lifetime, None);
        assert_eq!(vetted.kubeconfig.current_context.as_deref(), Some("member"));
    }

    #[test]
    fn each_trap_has_its_own_reason_and_nothing_is_echoed() {
        let more = |more: &str| format!("{SERVER}, {more}");
        let rows = [
            (config(&more("insecure-skip-tls-verify: true"), TOKEN), reason::KUBECONFIG_INSECURE),
            (config("server: 'http://10.0.0.1'", TOKEN), reason::KUBECONFIG_INSECURE),
            (config(&more("certificate-authority: /s3cr3t"), TOKEN), reason::KUBECONFIG_CA_FILE),
            (config(&more("proxy-url: 'http://s3cr3t'"), TOKEN), reason::KUBECONFIG_PROXY),
            (config(SERVER, "exec: {apiVersion: x, command: s3cr3t}"), reason::KUBECONFIG_EXEC),
            (config(SERVER, "auth-provider: {name: s3cr3t}"), reason::KUBECONFIG_AUTH_PROVIDER),
            (config(SERVER, "tokenFile: /s3cr3t"), reason::KUBECONFIG_TOKEN_FILE),
            (config(SERVER, "client-certificate: /s3cr3t"), reason::KUBECONFIG_CERTIFICATE_FILE),
            (config(SERVER, "client-key: /s3cr3t"), reason::KUBECONFIG_KEY_FILE),
            (config(SERVER, "username: a, password: s3cr3t"), reason::KUBECONFIG_BASIC_AUTH),
            (config(SERVER, ""), reason::KUBECONFIG_CREDENTIALS),
            (config(SERVER, "client-certificate-data: czNjcjN0"), reason::KUBECONFIG_CREDENTIALS),
            (
                config(SERVER, "client-certificate-data: czNjcjN0, client-key-data: czNjcjN0"),
                reason::KUBECONFIG_CREDENTIALS,
            ),
            (config(SERVER, "token: 'a s3cr3t'"), reason::KUBECONFIG_CREDENTIALS),
            (config(SERVER, "token: e30.eyJpYXQiOi0xMCwiZXhwIjotNX0.s3cr3t"), reason::KUBECONFIG_CREDENTIALS),
            (config(&more("certificate-authority-data: czNjcjN0"), TOKEN), reason::KUBECONFIG_INVALID),
            (config("server: 'https://s3cr3t:s3cr3t@host'", TOKEN), reason::KUBECONFIG_INVALID),
            (config("server: 'ftp://s3cr3t'", TOKEN), reason::KUBECONFIG_INVALID),
            (config("", TOKEN), reason::KUBECONFIG_INVALID),
            (
                config(SERVER, TOKEN).replace("current-context: a", "current-context: s3cr3t"),
                reason::KUBECONFIG_INVALID,
            ),
            (format!("{SECRET}: ["), reason::KUBECONFIG_INVALID),
            (format!("clusters: {SECRET}"), reason::KUBECONFIG_INVALID),
            (String::new(), reason::KUBECONFIG_INVALID),
            (" ".repeat(LIMIT + 1), reason::KUBECONFIG_INVALID),
        ];
        for (text, reason) in rows {
            let refused = judged(&text).err().unwrap_or_else(|| panic!("{text} is taken"));
            assert_eq!(refused.reason, reason, "{text}");
            assert!(!refused.message.contains("s3cr3t") && refused.message.contains(": "), "{}", refused.message);
        }
    }

    #[test]
    fn several_contexts_need_a_current_one_and_a_single_one_does_not() {
        let one = config(SERVER, TOKEN).replace("current-context: a\n", "");
        assert!(judged(&one).is_ok());
        let two = one.replace("contexts: [", "contexts: [{name: b, context: {cluster: c, user: u}}, ");
        assert_eq!(judged(&two).err().unwrap().reason, reason::KUBECONFIG_NO_CONTEXT);
    }

    #[test]
    fn what_the_current_context_does_not_name_is_left_behind() {
        let text = config(SERVER, TOKEN).replace("users: [", "users: [{name: other, user: {exec: {command: x}}}, ");
        let kept = judged(&text).ok().unwrap().kubeconfig;
        assert_eq!((kept.auth_infos.len(), kept.clusters.len(), kept.contexts.len()), (1, 1, 1));
        assert!(kept.auth_infos[0].auth_info.as_ref().unwrap().exec.is_none());
    }

    #[test]
    fn a_proxy_is_taken_where_the_operator_allows_it() {
        let text = config(&format!("{SERVER}, proxy-url: 'http://proxy:3128'"), TOKEN);
        assert!(vet(text.as_bytes(), true, Timestamp::UNIX_EPOCH).is_ok());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_speak_of_them(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Err(refused) = vet(&bytes, false, Timestamp::UNIX_EPOCH) {
                prop_assert!(refused.message.starts_with("the kubeconfig") || refused.message.starts_with("of the kubeconfig"));
            }
        }
    }
}
