//! PURE: judges a PEM certificate chain and its private key, for the route and for the status.

use k8s_openapi::jiff::Timestamp;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What is kept of a certificate: enough to judge it again as time passes or the host changes. No key material.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The earliest notAfter in the chain: when the first client refuses it.
    pub not_after: Timestamp,
    /// DNS names and IP addresses of the leaf's subject alternative name, lower case. A common name does not count:
    /// clients have ignored it since RFC 6125 and Go 1.15.
    pub names: Box<[Box<str>]>,
    /// Each certificate of the chain is followed by its issuer's, as TLS before 1.3 asks for (RFC 5246 §7.4.2).
    pub ordered: bool,
}

impl Certificate {
    /// Parses a chain (leaf first) and checks that `key` is the leaf's.
    ///
    /// # Errors
    /// One sentence without anything of the input, to follow the name of the object and field.
    pub fn parse(cert: &[u8], key: &[u8]) -> Result<Self, Box<str>> {
        let chain: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(cert)
            .collect::<Result<_, _>>()
            .map_err(|_| "the certificate is not valid PEM")?;
        let leaf = chain.first().ok_or("there is no PEM block of type CERTIFICATE in the certificate")?;
        let (mut not_after, mut ordered, mut issuer) = (i64::MAX, true, None);
        for der in &chain {
            let (_, parsed) =
                X509Certificate::from_der(der).map_err(|_| "the certificate is not a valid X.509 certificate")?;
            not_after = not_after.min(parsed.validity().not_after.timestamp());
            ordered &= issuer.is_none_or(|issuer: Vec<u8>| issuer == parsed.subject().as_raw());
            issuer = Some(parsed.issuer().as_raw().to_vec());
        }
        let (_, leaf) =
            X509Certificate::from_der(leaf).map_err(|_| "the certificate is not a valid X.509 certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "the key is not a PEM private key")?;
        // A type that this library cannot sign with (P-521, short RSA) is not judged: the proxy may well know it.
        if let Some(public) = any_supported_type(&key).ok().and_then(|k| k.public_key().map(|p| p.to_vec()))
            && public != leaf.public_key().raw
        {
            return Err("the key is not the certificate's".into());
        }
        Ok(Self {
            not_after: Timestamp::from_second(not_after).unwrap_or(Timestamp::MAX),
            names: names(&leaf),
            ordered,
        })
    }

    /// Whether clients that connect to `host` (a DNS name or an IP address) accept the certificate's names (RFC 6125:
    /// a wildcard stands for exactly one leftmost label).
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        self.names.iter().any(|name| {
            **name == *host
                || name.strip_prefix("*.").is_some_and(|parent| {
                    host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent)
                })
        })
    }
}

fn names(leaf: &X509Certificate<'_>) -> Box<[Box<str>]> {
    let Ok(Some(extension)) = leaf.subject_alternative_name() else { return Box::default() };
    extension
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.trim_end_matches('.').to_ascii_lowercase().into()),
            GeneralName::IPAddress(bytes) => <[u8; 4]>::try_from(*bytes)
                .map(std::net::IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(*bytes).map(std::net::IpAddr::from))
                .ok()
                .map(|ip| ip.to_string().into()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    /// A leaf with these names signed by an issuer: (leaf, issuer, key of the leaf).
    fn chain(names: &[&str]) -> (String, String, String) {
        let (root, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut issuer = CertificateParams::new(Vec::new()).unwrap();
        issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        issuer.distinguished_name.push(DnType::CommonName, "issuer");
        let ca = issuer.self_signed(&root).unwrap().pem();
        let leaf = CertificateParams::new(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>()).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::new(issuer, root)).unwrap().pem();
        (leaf, ca, key.serialize_pem())
    }

    #[test]
    fn a_chain_is_in_order_when_each_issuer_follows_what_it_issued() {
        let (leaf, issuer, key) = chain(&["a.example"]);
        let (_, stranger, _) = chain(&["b.example"]);
        let ordered = |text: String| Certificate::parse(text.as_bytes(), key.as_bytes()).unwrap().ordered;
        assert!(ordered(leaf.clone()) && ordered(format!("{leaf}{issuer}")));
        let (other_leaf, ..) = chain(&["c.example"]);
        assert!(!ordered(format!("{leaf}{other_leaf}{issuer}")));
        // Same name, another key: order is judged by name, as clients search for issuers.
        assert!(ordered(format!("{leaf}{stranger}")));
    }

    #[test]
    fn a_key_must_be_the_leafs_and_nothing_of_it_is_told() {
        let ((leaf, _, key), (_, _, other)) = (chain(&["a.example"]), chain(&["a.example"]));
        assert!(Certificate::parse(leaf.as_bytes(), key.as_bytes()).is_ok());
        for (cert, key) in
            [(leaf.as_str(), other.as_str()), (&leaf, "x"), ("x", &key), ("", ""), (&key, &key), (&leaf, &leaf)]
        {
            let told = Certificate::parse(cert.as_bytes(), key.as_bytes()).unwrap_err();
            assert!(!told.contains("BEGIN") && told.len() < 100, "{told}");
        }
    }

    #[test]
    fn names_match_as_clients_match_them() {
        let (leaf, _, key) = chain(&["A.example", "*.wild.example", "10.0.0.1"]);
        let certificate = Certificate::parse(leaf.as_bytes(), key.as_bytes()).unwrap();
        for covered in ["a.example", "A.EXAMPLE", "x.wild.example", "10.0.0.1"] {
            assert!(certificate.covers(covered), "{covered}");
        }
        for other in ["b.example", "wild.example", "x.y.wild.example", ".wild.example", "10.0.0.2"] {
            assert!(!certificate.covers(other), "{other}");
        }
    }
}
