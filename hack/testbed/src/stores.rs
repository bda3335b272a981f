//! Real stores for MLflow: an S3 server over a directory, and PostgreSQL.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use crate::command::{command, run};
use crate::error::Error;
use crate::keeper::Ending;
use crate::progress::Step;
use crate::service::{Service, http_status};
use crate::{Testbed, binaries, machine, state};

/// A running S3 server; dropping it stops it and removes what it holds.
#[derive(Debug)]
pub struct S3 {
    service: Service,
    address: SocketAddr,
}

impl S3 {
    /// `http://ADDRESS:PORT`, reachable from pods and from this machine.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The access key id.
    #[must_use]
    pub fn access_key(&self) -> &'static str {
        "mlflow"
    }

    /// The secret access key.
    #[must_use]
    pub fn secret_key(&self) -> &'static str {
        "mlflow1234"
    }

    /// The directory of a bucket: its objects are files in it.
    #[must_use]
    pub fn bucket(&self, name: &str) -> PathBuf {
        self.service.dir.join(name)
    }
}

/// A running PostgreSQL; dropping it stops it and removes its data.
#[derive(Debug)]
pub struct Postgres {
    service: Service,
    address: SocketAddr,
}

impl Postgres {
    /// Where it listens: reachable from pods and from this machine.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The owner of the database, and its superuser.
    #[must_use]
    pub fn user(&self) -> &'static str {
        "mlflow"
    }

    /// Its password.
    #[must_use]
    pub fn password(&self) -> &'static str {
        "mlflow1234"
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &'static str {
        "mlflow"
    }

    /// As MLflow wants it: `postgresql+psycopg2://...`.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("postgresql+psycopg2://{}:{}@{}/{}", self.user(), self.password(), self.address, self.database())
    }

    /// What it logs.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.service.log
    }
}

impl Testbed {
    /// Starts an S3 server with these buckets.
    ///
    /// # Errors
    /// When it cannot be obtained or does not start.
    pub async fn s3(&self, buckets: &[&str]) -> Result<S3, Error> {
        let program = binaries::obtain_one("versitygw").await?;
        let s3 = S3 { service: Service::new(&self.plan, "s3")?, address: self.free_address()? };
        for bucket in buckets {
            state::make_dir(&s3.bucket(bucket))?;
        }
        let argv = vec![
            program.display().to_string(),
            format!("--access={}", s3.access_key()),
            format!("--secret={}", s3.secret_key()),
            format!("--port={}", s3.address),
            "--health=/health".to_owned(),
            "posix".to_owned(),
            s3.service.dir.display().to_string(),
        ];
        s3.service.start(argv, &[], Ending::Terminate)?;
        s3.service.ready(|| async { http_status(s3.address, "/health").await == Some(200) }).await?;
        Ok(s3)
    }

    /// Starts a PostgreSQL with an empty database.
    ///
    /// # Errors
    /// When it cannot be installed or does not start.
    pub async fn postgres(&self) -> Result<Postgres, Error> {
        install_postgres().await?;
        let postgres = Postgres { service: Service::new(&self.plan, "postgres")?, address: self.free_address()? };
        let step = Step::begin("starting PostgreSQL");
        step.watch(postgres.begin()).await?;
        Ok(postgres)
    }

    /// A free port where pods and this machine reach it.
    fn free_address(&self) -> Result<SocketAddr, Error> {
        let address = self.node_address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        TcpListener::bind((address, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| Error::machine(format!("no free port on {address}: {error}"), "end some programs"))
    }
}

impl Postgres {
    async fn begin(&self) -> Result<(), Error> {
        let programs = programs()?;
        let data = self.data();
        state::write(&self.service.dir.join("password"), self.password())?;
        if machine::is_root() {
            run(command("chown").arg("-R").arg("postgres:postgres").arg(&self.service.dir)).await?;
        }
        let initdb = [
            programs.join("initdb").display().to_string(),
            format!("--pgdata={data}/data"),
            format!("--username={}", self.user()),
            format!("--pwfile={data}/password"),
            "--auth-host=scram-sha-256".to_owned(),
            "--auth-local=trust".to_owned(),
            "--encoding=UTF8".to_owned(),
            "--no-sync".to_owned(),
        ];
        let words = self.as_postgres(initdb.to_vec());
        run(command(&words[0]).args(&words[1..])).await?;
        self.admit_pods()?;
        let server = [
            programs.join("postgres").display().to_string(),
            "-D".to_owned(),
            format!("{data}/data"),
            format!("-clisten_addresses={}", self.address.ip()),
            format!("-cport={}", self.address.port()),
            format!("-cunix_socket_directories={data}"),
            "-cfsync=off".to_owned(),
        ];
        self.service.start(self.as_postgres(server.to_vec()), &[], Ending::Interrupt)?;
        let client = |program: &str| {
            let mut client = command(programs.join(program));
            client.args(["--host", &self.address.ip().to_string(), "--port", &self.address.port().to_string()]);
            client.args(["--username", self.user()]).env("PGPASSWORD", self.password());
            client
        };
        self.service.ready(|| async { run(&mut client("pg_isready")).await.is_ok() }).await?;
        run(client("createdb").arg(self.database())).await.map(drop)
    }

    /// The access rules of a new cluster admit only this machine.
    fn admit_pods(&self) -> Result<(), Error> {
        use std::io::Write as _;
        let path = self.service.dir.join("data/pg_hba.conf");
        let mut file = std::fs::File::options().append(true).open(&path).map_err(Error::file(&path))?;
        writeln!(file, "host all all 10.0.0.0/8 scram-sha-256").map_err(Error::file(&path))
    }

    /// Its directory, as the server sees it.
    fn data(&self) -> String {
        if machine::is_root() { "/mnt".to_owned() } else { self.service.dir.display().to_string() }
    }

    /// PostgreSQL refuses to run as root, and its user cannot look into root's directories: so the directory is shown
    /// to it elsewhere. An IPC namespace of its own takes its shared memory away with it, however it ends.
    fn as_postgres(&self, argv: Vec<String>) -> Vec<String> {
        const SCRIPT: &str = "mount --bind \"$1\" /mnt; shift; cd /mnt
exec setpriv --reuid=postgres --regid=postgres --init-groups --pdeathsig KILL -- \"$@\"";
        if !machine::is_root() {
            return argv;
        }
        let dir = self.service.dir.display().to_string();
        let prefix = ["unshare", "--mount", "--ipc", "--propagation", "private", "sh", "-ec", SCRIPT, "sh", &dir];
        prefix.iter().map(|word| (*word).to_owned()).chain(argv).collect()
    }
}

/// Installs the server without the database cluster that its package would make and run.
pub(crate) async fn install_postgres() -> Result<(), Error> {
    if programs().is_ok() {
        return Ok(());
    }
    let settings = Path::new("/etc/postgresql-common/createcluster.conf");
    if machine::is_root() && !settings.exists() {
        state::make_dir(Path::new("/etc/postgresql-common"))?;
        state::write(settings, "create_main_cluster = false\n")?;
    }
    machine::ensure_packages(&["postgresql"]).await
}

/// The newest server's programs; Debian keeps them off `PATH`.
fn programs() -> Result<PathBuf, Error> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join("initdb").is_file())
        .max()
        .ok_or_else(|| Error::machine("no PostgreSQL server is installed", "apt-get install postgresql"))
}
