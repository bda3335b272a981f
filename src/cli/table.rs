//! PURE: tables as kubectl prints them.

/// A table for a terminal: columns as wide as their widest cell, three spaces apart.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    /// Adds a row. An empty cell, or one that is missing, is shown as empty.
    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |at: usize| self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).filter_map(width).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("   ").trim_end())?;
        }
        Ok(())
    }
}

/// A time span in one or two units, as kubectl's AGE: `59s`, `4m10s`, `3h12m`, `2d5h`, `40d`.
#[must_use]
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let two = |(large, unit): (i64, &str), (small, below): (i64, &str)| match (seconds / large, seconds % large / small)
    {
        (whole, 0) => format!("{whole}{unit}"),
        (whole, rest) => format!("{whole}{unit}{rest}{below}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two((60, "m"), (1, "s")),
        600..10_800 => format!("{}m", seconds / 60),
        10_800..28_800 => two((3_600, "h"), (60, "m")),
        28_800..172_800 => format!("{}h", seconds / 3_600),
        172_800..691_200 => two((86_400, "d"), (3_600, "h")),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_do_not_end_in_spaces() {
        let mut table = Table::new(&["NAME", "READY", "URL"]);
        table.push(["bücher", "True", ""].map(str::to_owned));
        table.push(["a", "False", "http://h/"].map(str::to_owned));
        assert_eq!(table.to_string(), "NAME     READY   URL\nbücher   True\na        False   http://h/\n");
    }

    #[test]
    fn an_age_is_told_as_kubectl_tells_it() {
        let rows = [(-5, "0s"), (119, "119s"), (120, "2m"), (250, "4m10s"), (601, "10m"), (11_520, "3h12m")];
        for (seconds, told) in rows.into_iter().chain([(90_000, "25h"), (190_800, "2d5h"), (4_000_000, "46d")]) {
            assert_eq!(age(seconds), told);
        }
    }
}
