//! PURE: when credentials begin and end.

use k8s_openapi::ByteString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The time during which credentials are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Its begin, if that is told.
    pub begins: Option<Timestamp>,
    /// Its end.
    pub ends: Timestamp,
}

impl Lifetime {
    /// Of a client certificate in PEM.
    #[must_use]
    pub fn of_certificate(pem: &[u8]) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem).ok()?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        let validity = certificate.validity();
        let at = |time: i64| Timestamp::from_second(time).ok();
        Some(Self { begins: at(validity.not_before.timestamp()), ends: at(validity.not_after.timestamp())? })
    }

    /// Of a JWT (RFC 7519): `iat` and `exp`. `None` for any other token.
    #[must_use]
    pub fn of_token(token: &str) -> Option<Self> {
        let payload = token.split('.').nth(1)?.trim_end_matches('=');
        let mut text = payload.replace('-', "+").replace('_', "/");
        text.extend(std::iter::repeat_n('=', (4 - text.len() % 4) % 4));
        let claims: Value = serde_json::from_slice(&base64(&text)?).ok()?;
        let at = |name: &str| Timestamp::from_second(claims[name].as_i64()?).ok();
        Some(Self { begins: at("iat"), ends: at("exp")? })
    }

    /// From when on a person should be warned: for the last tenth of the lifetime, 30 days at most, 7 days when the
    /// begin is not known. A token of an hour is not worth a warning that lasts all its life.
    #[must_use]
    pub fn warns(&self) -> Timestamp {
        let tenth = self.begins.map(|begins| self.ends.duration_since(begins) / 10);
        let before = tenth.unwrap_or(SignedDuration::from_hours(7 * 24)).min(SignedDuration::from_hours(30 * 24));
        self.ends.checked_sub(before).unwrap_or(self.ends)
    }
}

/// Decodes base64, line breaks and all, as Kubernetes does.
#[must_use]
pub fn base64(text: &str) -> Option<Vec<u8>> {
    let text: String = text.split_ascii_whitespace().collect();
    serde_json::from_value::<ByteString>(Value::String(text)).ok().map(|bytes| bytes.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_when_it_ends_and_a_short_one_warns_late() {
        // {"iat":1000,"exp":4600}
        let lifetime = Lifetime::of_token("e30.eyJpYXQiOjEwMDAsImV4cCI6NDYwMH0.sig").unwrap();
        assert_eq!((lifetime.ends.as_second(), lifetime.warns().as_second()), (4600, 4240));
        for none in ["", "opaque", "a.b.c", "e30.e30.x"] {
            assert_eq!(Lifetime::of_token(none), None, "{none}");
        }
    }

    #[test]
    fn a_certificate_of_many_years_warns_for_thirty_days() {
        let made = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
        let lifetime = Lifetime::of_certificate(made.cert.pem().as_bytes()).unwrap();
        assert_eq!(lifetime.ends.duration_since(lifetime.warns()), SignedDuration::from_hours(30 * 24));
    }
}
