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
        let mut not_after = i64::MAX;
        for der in &chain {
            let (_, parsed) =
                X509Certificate::from_der(der).map_err(|_| "the certificate is not a valid X.509 certificate")?;
            not_after = not_after.min(parsed.validity().not_after.timestamp());
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
        Ok(Self { not_after: Timestamp::from_second(not_after).unwrap_or(Timestamp::MAX), names: names(&leaf) })
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
