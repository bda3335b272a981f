//! aiscope-operator: a team writes a short custom resource, the operator keeps everything behind it standing.

pub mod api;
pub mod cli;
pub mod engine;
pub mod kinds;
pub mod ops;
pub mod parts;
pub mod render;
#[cfg(test)]
mod shipped;

#[cfg(test)]
mod purity {
    //! Deciding is pure: files that say so hold no client, no waiting, no clock and no chance.

    use std::path::Path;

    const IMPURE: [&str; 8] = ["async ", ".await", "kube::Client", "Api::", "Api<", "::now()", "fastrand", "tokio"];

    fn files(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_file_says_what_it_is_and_pure_files_are_pure() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut all = Vec::new();
        files(&src, &mut all);
        for path in all {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(&src).unwrap().to_string_lossy().into_owned();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            let pure_place = ["api/", "kinds/", "parts/"].iter().any(|dir| name.starts_with(dir));
            let says_pure = text.starts_with("//! PURE:");
            let maps = ["lib.rs", "main.rs", "engine/mod.rs", "kinds/golden.rs"].contains(&name.as_str());
            assert!(
                maps || says_pure || (text.starts_with("//! SHELL:") && !pure_place),
                "{name}: the first line says PURE or SHELL"
            );
            if says_pure {
                let impure = IMPURE
                    .iter()
                    .find(|word| code.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(*word)));
                assert_eq!(impure, None, "{name}");
            }
        }
    }
}
