//! MLflow's own client on this machine, from the very image its server runs in.

use std::process::Command;

use crate::error::Error;
use crate::image::Image;
use crate::{Testbed, machine};

/// The image's root with this machine's network, processes and `/tmp`.
const SCRIPT: &str = r#"
root=$1; shift
mount --bind /proc "$root/proc"
mount --bind /dev "$root/dev"
mount --bind /tmp "$root/tmp"
for file in hosts resolv.conf; do
  [ ! -e "/etc/$file" ] || { touch "$root/etc/$file"; mount --bind "/etc/$file" "$root/etc/$file"; }
done
exec chroot "$root" /usr/bin/env HOME=/tmp PATH=/usr/local/bin:/usr/bin:/bin python3 -B "$@"
"#;

impl Testbed {
    /// A Python that has MLflow, boto3 and psycopg2: add arguments (`-c CODE`, or a script below `/tmp`) and
    /// environment, and run it. It is on this machine's network and sees this machine's `/tmp`, nothing else of it.
    ///
    /// # Errors
    /// When not root, or when the image cannot be built.
    pub async fn mlflow_python(&self) -> Result<Command, Error> {
        if !machine::is_root() {
            return Err(Error::machine("MLflow's client needs root, to enter the image", "run as root"));
        }
        let root = Image::Mlflow.entry().await?.join("rootfs");
        let mut python = Command::new("unshare");
        python.args(["--mount", "--propagation", "private", "sh", "-ec", SCRIPT, "sh"]).arg(root);
        Ok(python)
    }
}
