//! PURE: the public URL of a resource, understood or refused. Everything in it is safe in a route rule, a regular
//! expression after [`PublicUrl::path_pattern`], a header and a comma separated list.

use std::fmt;

use crate::engine::claims::Claim;

/// A public URL. Its parts are made of the characters of `SEGMENT` and of DNS names only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// It is `https`.
    pub secure: bool,
    /// DNS name (IDNA's ASCII form, lower case, no trailing dot) or IPv4 address.
    pub host: String,
    /// The port, when it is not the scheme's own.
    pub port: Option<u16>,
    /// The segments of the path; empty for the whole host.
    pub path: Vec<String>,
}

/// What a path segment may consist of beside letters and digits. No quote, backslash, `$`, `%`, bracket or space: none
/// of these can end a string in a Traefik rule or an nginx location.
const SEGMENT: &str = "._~+:@,=!-";

impl PublicUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// One sentence that follows "spec.url " and says what to do. It shows nothing of the value: a password may be in it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("must start with http:// or https://")?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err("must start with http:// or https://"),
        };
        if rest.contains(['?', '#']) {
            return Err("must not have a query or a fragment; remove everything from ? or # on");
        }
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if authority.contains('@') {
            return Err("must not have a user or password; remove everything up to @");
        }
        let (host, port) = split_port(authority)?;
        let port = port.filter(|port| *port != if secure { 443 } else { 80 });
        Ok(Self { secure, host: read_host(host)?, port, path: read_path(path)? })
    }

    /// `http` or `https`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// Scheme, host and port as a browser's `Origin` header has them.
    #[must_use]
    pub fn origin(&self) -> String {
        match self.port {
            Some(port) => format!("{}://{}:{port}", self.scheme(), self.host),
            None => format!("{}://{}", self.scheme(), self.host),
        }
    }

    /// The path without slash at its end: `/a/b`, or nothing for the whole host.
    #[must_use]
    pub fn prefix(&self) -> String {
        self.path.iter().fold(String::new(), |path, segment| path + "/" + segment)
    }

    /// [`Self::prefix`] as a regular expression that matches exactly it (RE2, PCRE and nginx agree on these escapes).
    #[must_use]
    pub fn path_pattern(&self) -> String {
        let prefix = self.prefix();
        prefix.chars().fold(String::with_capacity(prefix.len()), |mut out, c| {
            if matches!(c, '.' | '+') {
                out.push('\\');
            }
            out.push(c);
            out
        })
    }

    /// The host is an IP address, which an Ingress cannot name.
    #[must_use]
    pub fn is_address(&self) -> bool {
        self.host.parse::<std::net::Ipv4Addr>().is_ok()
    }

    /// The part of the URL space that is asked for.
    #[must_use]
    pub fn claim(&self) -> Claim {
        Claim::new(&self.host, &self.prefix())
    }
}

/// With a slash at its end: without it, relative links of the page lead outside the prefix.
impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}/", self.origin(), self.prefix())
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    if authority.starts_with('[') {
        return Err("must name its host by DNS name or IPv4 address, not by IPv6 address");
    }
    match authority.split_once(':') {
        None => Ok((authority, None)),
        Some((host, "")) => Ok((host, None)),
        Some((host, port)) => match port.parse::<u16>() {
            Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => Ok((host, Some(number))),
            _ => Err("must have a port between 1 and 65535, or none"),
        },
    }
}

fn read_host(text: &str) -> Result<String, &'static str> {
    const BAD: &str = "must have a host of letters, digits, - and . only, e.g. https://ml.example.com/team";
    if text.is_empty() {
        return Err("must have a host, e.g. https://ml.example.com/team");
    }
    // Before IDNA: its mapping turns some of what it gets into nothing or into dots, and % is decoded.
    if !text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c) || (!c.is_ascii() && c.is_alphanumeric())) {
        return Err(BAD);
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    let host = ::url::Host::parse(text).map_err(|_| BAD)?.to_string();
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    if host.len() > 253 || !host.split('.').all(label) {
        return Err(BAD);
    }
    Ok(host)
}

fn read_path(text: &str) -> Result<Vec<String>, &'static str> {
    let inner = text.strip_prefix('/').unwrap_or(text);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.is_empty() {
        return Ok(Vec::new());
    }
    inner
        .split('/')
        .map(|segment| match segment {
            "" | "." | ".." => Err("must have a path without empty, . and .. segments"),
            _ if segment.chars().all(|c| c.is_ascii_alphanumeric() || SEGMENT.contains(c)) => Ok(segment.to_owned()),
            _ => Err("must have a path of letters, digits and ._~+:@,=!- only"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::tracking_server::URL_PATTERN;

    fn read(text: &str) -> String {
        match PublicUrl::parse(text) {
            Ok(url) => url.to_string(),
            Err(why) => format!("! {why}"),
        }
    }

    #[test]
    fn a_url_is_normalised() {
        for (text, wanted) in [
            ("http://ml.example.com", "http://ml.example.com/"),
            ("HTTPS://ML.Example.com.:443/Team", "https://ml.example.com/Team/"),
            ("https://ml.example.com:8443/a/b/", "https://ml.example.com:8443/a/b/"),
            ("http://ml.example.com:/", "http://ml.example.com/"),
            ("http://bücher.example/x", "http://xn--bcher-kva.example/x/"),
            ("http://10.0.0.7:32080/p", "http://10.0.0.7:32080/p/"),
            ("http://my_host/p", "http://my_host/p/"),
        ] {
            assert_eq!(read(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_could_leave_a_rule_is_refused() {
        let regex = regex::Regex::new(URL_PATTERN).unwrap();
        for text in [
            "ml.example.com",
            "ftp://ml.example.com",
            "http://",
            "http:///p",
            "http://:80/",
            "http://u:p@ml.example.com/",
            "http://ml.example.com/?a=b",
            "http://ml.example.com/#x",
            "http://ml.example.com/a`) || Host(`evil",
            "http://ml.example.com/a\") || Host(\"evil",
            "http://ml.example.com/a%20b",
            "http://ml.example.com/a b",
            "http://ml.example.com/$1",
            "http://ml.example.com/a\nb",
            "http://ml`.example.com/",
            "http://*.example.com/",
            "http://[::1]/",
        ] {
            assert!(PublicUrl::parse(text).is_err(), "{text}");
            assert!(!regex.is_match(text), "the API server would let {text} pass");
        }
        for text in ["http://h:70000/", "http://h:0", "http://h/a/../b", "http://h//a", "http://a..b/"] {
            assert!(PublicUrl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_password_is_repeated() {
        let why = PublicUrl::parse("http://user:hunter2@ml.example.com/").unwrap_err();
        assert!(!why.contains("hunter2"));
    }

    proptest! {
        #[test]
        fn any_text_is_understood_or_refused_but_never_panics(text in "\\PC*") {
            let _ = PublicUrl::parse(&text);
            let _ = PublicUrl::parse(&format!("http://{text}"));
            let _ = PublicUrl::parse(&format!("http://h/{text}"));
        }

        #[test]
        fn what_is_understood_passes_the_api_server_and_reads_the_same_again(
            scheme in "(http|https|HTTP)", host in "\\PC{0,12}", port in "(:[0-9]{0,5})?", path in "(/[ -~]{0,8}){0,3}"
        ) {
            let text = format!("{scheme}://{host}{port}{path}");
            if let Ok(url) = PublicUrl::parse(&text) {
                prop_assert!(regex::Regex::new(URL_PATTERN).unwrap().is_match(&text), "{}", text);
                prop_assert_eq!(PublicUrl::parse(&url.to_string()).unwrap(), url);
            }
        }
    }
}
