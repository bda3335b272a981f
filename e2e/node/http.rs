//! What a browser does, without one: requests and web sockets, by host name, through whatever stands before the pods.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::ClientRequestBuilder;
use url::Url;

use crate::kit::{DEADLINE, Error};

pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A web socket, to whomever.
pub type Socket = WebSocketStream<Box<dyn Stream>>;

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Reply {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<Value, Error> {
        serde_json::from_str(&self.body).map_err(|error| format!("{error}: {self:?}").into())
    }
}

/// Goes to one URL. Every host name is this machine's.
pub struct Visitor {
    pub url: Url,
    tls: Option<TlsConnector>,
    headers: Vec<(&'static str, String)>,
}

impl Visitor {
    /// Trusts the certificates of this authority and no other.
    pub fn new(url: &str, authority: Option<&Path>) -> Result<Self, Error> {
        let tls = authority.map(|file| -> Result<TlsConnector, Error> {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(file)?)?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
            Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into())
        });
        Ok(Self { url: url.parse()?, tls: tls.transpose()?, headers: Vec::new() })
    }

    /// Sends this header with everything.
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, Error> {
        let host = self.url.host_str().ok_or("no host")?;
        let address = host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let stream = TcpStream::connect((address, self.url.port_or_known_default().ok_or("no port")?)).await?;
        if self.url.scheme() == "http" {
            return Ok(Box::new(stream));
        }
        let tls = self.tls.as_ref().ok_or("no authority to trust")?;
        Ok(Box::new(tls.connect(ServerName::try_from(host.to_owned())?, stream).await?))
    }

    /// The URL's host, and its port when it has one.
    pub fn authority(&self) -> String {
        self.url[url::Position::BeforeHost..url::Position::AfterPort].to_owned()
    }

    /// Sends a request to a path after the URL's.
    pub async fn send(&self, method: &str, path: &str, body: &str) -> Result<Reply, Error> {
        let (place, authority) = (self.url.path().trim_end_matches('/'), self.authority());
        let headers: String = self.headers.iter().map(|(name, value)| [name, ": ", value, "\r\n"].concat()).collect();
        let length = body.len();
        // Of this version, an answer ends with its connection.
        let request = format!(
            "{method} {place}{path} HTTP/1.0\r\nHost: {authority}\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        let exchange = async {
            let mut stream = self.connect().await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok::<_, Error>(String::from_utf8_lossy(&answer).into_owned())
        };
        let answer = tokio::time::timeout(DEADLINE, exchange).await??;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("{method} {path}: {answer:?}"))?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
        Ok(Reply { status, head: head.into(), body: body.into() })
    }

    /// Fetches a path after the URL's.
    pub async fn get(&self, path: &str) -> Result<Reply, Error> {
        self.send("GET", path, "").await
    }

    /// Fetches it again and again until it is there: nobody tells when a proxy has taken up a route.
    pub async fn until_there(&self, path: &str) -> Result<Reply, Error> {
        let mut last = String::new();
        let mut again = tokio::time::interval(Duration::from_millis(50));
        let found = tokio::time::timeout(DEADLINE, async {
            loop {
                again.tick().await;
                match self.get(path).await {
                    Ok(reply) if reply.status == 200 => return reply,
                    other => last = format!("{other:?}"),
                }
            }
        });
        found.await.map_err(|_| format!("{}{path} is not there after {DEADLINE:?}: {last}", self.url).into())
    }

    /// Opens a web socket at a path after the URL's, as a page of that URL would.
    pub async fn socket(&self, path: &str) -> Result<Socket, Error> {
        self.socket_from(path, &self.url.origin().ascii_serialization()).await
    }

    /// The same, as a page of another origin would.
    pub async fn socket_from(&self, path: &str, origin: &str) -> Result<Socket, Error> {
        let place = self.url.path().trim_end_matches('/');
        let uri = format!("ws://{}{place}{path}", self.authority()).parse()?;
        let request = ClientRequestBuilder::new(uri).with_header("Origin", origin);
        let request = self.headers.iter().fold(request, |request, (name, value)| request.with_header(*name, value));
        let opening = async {
            let stream = self.connect().await?;
            Ok::<_, Error>(tokio_tungstenite::client_async(request, stream).await?.0)
        };
        tokio::time::timeout(DEADLINE, opening).await?
    }
}
