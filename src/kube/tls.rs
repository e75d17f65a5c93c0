//! From certificates to a TLS configuration, and from a TLS failure to words.
//!
//! Pure but for reading the named files. Everything that could be wrong with a certificate, a key or a bundle is found here,
//! before a connection is tried, and named by file: the HTTP library would skip a bad authority in silence. The provider of
//! the cryptography is chosen here and nowhere else in this room.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, InconsistentKeys,
    RootCertStore, SignatureScheme,
};

use super::config::{Source, Trust};
use super::error::{Error, Fault};

/// A client certificate and its key.
pub(super) struct Identity {
    pub(super) certificate: Source,
    pub(super) key: Source,
}

pub(super) fn client_config(
    trust: &Trust,
    identity: Option<&Identity>,
) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Config(format!("TLS cannot be set up: {error}")))?;
    let builder = match trust {
        Trust::Authority(source) => builder.with_root_certificates(authority(source)?),
        Trust::System(bundles) => builder.with_root_certificates(system(bundles)?),
        Trust::DangerAnyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(DangerAcceptAnyone(Arc::clone(&provider)))),
    };
    let mut config = match identity {
        Some(identity) => {
            let key = certified(identity, &provider)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The files that a new configuration would be made from.
pub(super) fn files(trust: &Trust, identity: Option<&Identity>) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    if let Trust::Authority(source) = trust {
        sources.push(source);
    }
    if let Some(identity) = identity {
        sources.extend([&identity.certificate, &identity.key]);
    }
    sources
        .into_iter()
        .filter_map(|source| match source {
            Source::File(path) => Some(path.clone()),
            Source::Inline { .. } => None,
        })
        .collect()
}

/// What the server's certificate must be signed by, in words.
pub(super) fn trust_in_words(trust: &Trust) -> String {
    match trust {
        Trust::Authority(source) => format!("the certificate authority in {}", source.name()),
        Trust::System(_) => "a certificate authority of this system".to_owned(),
        Trust::DangerAnyone => "anyone".to_owned(),
    }
}

fn authority(source: &Source) -> Result<RootCertStore, Error> {
    let wrong = |why: &str| {
        Error::Config(format!(
            "the certificate authority in {} cannot be used: {why}",
            source.name()
        ))
    };
    let bytes = source.read()?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|_| wrong("it is not PEM"))?;
        roots
            .add(certificate)
            .map_err(|_| wrong("a certificate in it cannot be parsed"))?;
    }
    if roots.is_empty() {
        return Err(wrong("it holds no certificate"));
    }
    Ok(roots)
}

/// Public bundles hold a few odd certificates, which are left out.
fn system(bundles: &[PathBuf]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = bundles.iter().find(|path| path.exists()) {
        let bytes = Source::File(path.clone()).read()?;
        roots.add_parsable_certificates(
            CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok),
        );
    }
    if roots.is_empty() {
        return Err(Error::Config(
            "this cluster names no certificate authority and this system has no bundle of them; set certificate-authority in the kubeconfig or SSL_CERT_FILE"
                .to_owned(),
        ));
    }
    Ok(roots)
}

fn read_identity(
    identity: &Identity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&identity.certificate.read()?)
            .collect::<Result<_, _>>()
            .unwrap_or_default();
    if chain.is_empty() {
        return Err(Error::Config(format!(
            "the client certificate {} holds no certificate in PEM",
            identity.certificate.name()
        )));
    }
    let key = PrivateKeyDer::from_pem_slice(&identity.key.read()?).map_err(|_| {
        Error::Config(format!(
            "the client key {} holds no private key in PEM",
            identity.key.name()
        ))
    })?;
    Ok((chain, key))
}

/// A certificate with its key, checked to belong together. Certificates of version 1, which `openssl x509 -req` makes when
/// nothing else is said, cannot be checked by the library but do work, so that only a real mismatch is refused.
fn certified(identity: &Identity, provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
    let (chain, key) = read_identity(identity)?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| {
            Error::Config(format!(
                "the client key {} cannot be used: {error}",
                identity.key.name()
            ))
        })?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(Error::Config(format!(
                "the client certificate {} does not belong to the key {}",
                identity.certificate.name(),
                identity.key.name()
            )))
        }
        _ => Ok(certified),
    }
}

/// Why a handshake failed.
pub(super) fn fault(error: &rustls::Error, asked: &str, authority: &str) -> Fault {
    let when = |word: &str, time: &UnixTime| {
        i64::try_from(time.as_secs())
            .ok()
            .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
            .map_or(String::new(), |time| format!(" {word} {time}"))
    };
    match error {
        rustls::Error::InvalidCertificate(problem) => match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Fault::UnknownAuthority {
                    authority: authority.to_owned(),
                }
            }
            CertificateError::NotValidForNameContext { presented, .. } => Fault::NameMismatch {
                asked: asked.to_owned(),
                presented: names(presented),
            },
            CertificateError::NotValidForName => Fault::NameMismatch {
                asked: asked.to_owned(),
                presented: "another name".to_owned(),
            },
            CertificateError::Expired => Fault::CertificateExpired {
                not_after: String::new(),
            },
            CertificateError::ExpiredContext { not_after, .. } => Fault::CertificateExpired {
                not_after: when("on", not_after),
            },
            CertificateError::NotValidYet => Fault::CertificateNotYetValid {
                not_before: String::new(),
            },
            CertificateError::NotValidYetContext { not_before, .. } => {
                Fault::CertificateNotYetValid {
                    not_before: when("before", not_before),
                }
            }
            other => Fault::Tls(format!("the server's certificate is invalid: {other}")),
        },
        rustls::Error::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            // An authority of the same name but another key.
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied),
        ) => Fault::ClientCertificateRefused {
            alert: format!("{alert:?}"),
        },
        other => Fault::Tls(other.to_string()),
    }
}

/// The library writes names as `DnsName("a")`; people want `a`.
fn names(presented: &[String]) -> String {
    let plain: Vec<&str> = presented
        .iter()
        .map(|name| {
            name.split_once('(')
                .and_then(|(_, rest)| rest.strip_suffix(')'))
                .unwrap_or(name)
        })
        .map(|name| name.trim_matches('"'))
        .collect();
    if plain.is_empty() {
        return "no name at all".to_owned();
    }
    plain.join(", ")
}

/// `insecure-skip-tls-verify`: any certificate will do, but the server must still own its key.
#[derive(Debug)]
struct DangerAcceptAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for DangerAcceptAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
