//! PURE: Kubernetes quantities, exactly: `1.5Gi`, `500m`, `2e3`.
//!
//! The API server rewrites a quantity to its canonical form. What is applied in another form differs from what is read
//! back, so every quantity is written canonically from the start.
//! Format: <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

/// Ten to the ninth: a quantity counts whole billionths.
const NANO: i128 = 1_000_000_000;
/// The greatest quantity; greater ones are cut to it, as the API server does.
const MAX: i128 = i64::MAX as i128 * NANO;

/// A quantity.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Binary,
    Decimal,
    Exponent,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Quantity {
    /// Reads a quantity; `None` when it is none, or has more digits than any sensible one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let (form, binary, exponent) = read_suffix(suffix)?;
        // What cannot overflow below; a canonical form is within.
        if digits.len() > if binary == 0 { 28 } else { 19 } || fraction.len() > 40 {
            return None;
        }
        let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        let shift = exponent + 9 - i32::try_from(fraction.len()).ok()?;
        let nanos = scaled(mantissa << binary, shift).min(MAX);
        Some(Self { nanos: if negative { -nanos } else { nanos }, form })
    }

    /// Greater than zero.
    #[must_use]
    pub fn is_positive(&self) -> bool {
        self.nanos > 0
    }

    /// The form in which the API server writes it.
    #[must_use]
    pub fn canonical(&self) -> String {
        if self.nanos == 0 {
            return "0".into();
        }
        if self.form == Form::Binary && self.nanos % NANO == 0 && self.nanos.abs() >= 1024 * NANO {
            let (mut number, mut power) = (self.nanos / NANO, 0);
            while number % 1024 == 0 && power < 6 {
                (number, power) = (number / 1024, power + 1);
            }
            return format!("{number}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut number, mut power) = (self.nanos, 0);
        while number % 1000 == 0 && power < 9 {
            (number, power) = (number / 1000, power + 1);
        }
        match self.form {
            Form::Exponent if power == 3 => number.to_string(),
            Form::Exponent => format!("{number}e{}", 3 * i32::try_from(power).unwrap_or_default() - 9),
            _ => format!("{number}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power]),
        }
    }
}

/// The form, the power of two and the power of ten that a suffix stands for.
fn read_suffix(suffix: &str) -> Option<(Form, u32, i32)> {
    if let Some(at) = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|s| *s == suffix) {
        return Some((Form::Binary, 10 * (u32::try_from(at).ok()? + 1), 0));
    }
    if let Some(at) = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].iter().position(|s| *s == suffix) {
        return Some((Form::Decimal, 0, 3 * i32::try_from(at).ok()? - 9));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let plain = !digits.is_empty() && digits.len() <= 3 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| exponent.parse().ok().map(|power| (Form::Exponent, 0, power)))?
}

/// `mantissa × 10^shift`; what is smaller than a billionth is rounded up, as the API server does.
fn scaled(mantissa: i128, shift: i32) -> i128 {
    let ten = |power: u32| 10_i128.checked_pow(power);
    if mantissa == 0 {
        return 0;
    }
    match u32::try_from(shift) {
        Ok(up) => ten(up).and_then(|t| mantissa.checked_mul(t)).unwrap_or(MAX),
        Err(_) => ten(shift.unsigned_abs()).map_or(1, |t| mantissa / t + i128::from(mantissa % t != 0)),
    }
}

/// Writes the quantities of a container's resources canonically.
///
/// # Errors
/// The path below `spec.resources` of what is not a quantity.
pub fn canonical_resources(mut resources: ResourceRequirements) -> Result<ResourceRequirements, String> {
    for (part, list) in [("limits", &mut resources.limits), ("requests", &mut resources.requests)] {
        canonical_list(list.as_mut()).map_err(|name| format!("{part}.{name}"))?;
    }
    Ok(resources)
}

fn canonical_list(list: Option<&mut BTreeMap<String, Text>>) -> Result<(), String> {
    for (name, text) in list.into_iter().flatten() {
        text.0 = Quantity::parse(&text.0).ok_or_else(|| name.clone())?.canonical();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(text: &str) -> Option<String> {
        Quantity::parse(text).map(|q| q.canonical())
    }

    #[test]
    fn the_canonical_form_is_the_api_servers() {
        for (text, wanted) in [
            ("1024Mi", "1Gi"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1Gi", "1Gi"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("1000Ki", "1000Ki"),
            ("512", "512"),
            ("0.5Ki", "512"),
            ("0.1Gi", "107374182400m"),
            ("1e3", "1e3"),
            ("12E2", "1200"),
            ("1E", "1E"),
            ("1e-3", "1e-3"),
            ("+1.", "1"),
            (".5", "500m"),
            ("0Gi", "0"),
            ("-1Gi", "-1Gi"),
            ("0.1n", "1n"),
            ("010", "10"),
            ("100Ei", "9223372036854775807"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_refused() {
        for text in ["", "x", "1 Gi", "1gb", "1GiB", "--1", "1.2.3", ".", "Gi", "1e", "1e+", "1ki", "10 ", "1,5Gi"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }

    #[test]
    fn quantities_compare_by_value() {
        let parse = |text| Quantity::parse(text).unwrap();
        assert_eq!(parse("1024Mi"), parse("1Gi"));
        assert!(parse("1G") < parse("1Gi"));
        assert!(parse("1.5Gi") > parse("1535Mi"));
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_stable_and_keeps_the_value(
            text in "[+-]?[0-9]{0,9}(\\.[0-9]{0,6})?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
        ) {
            if let Some(quantity) = Quantity::parse(&text) {
                let canonical = quantity.canonical();
                let again = Quantity::parse(&canonical).unwrap();
                prop_assert_eq!(again, quantity, "{} -> {}", text, &canonical);
                prop_assert_eq!(again.canonical(), canonical);
            }
        }

        #[test]
        fn any_text_is_read_or_refused_but_never_panics(text in "\\PC*") {
            let _ = canonical(&text);
        }
    }
}
