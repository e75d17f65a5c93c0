//! Certificates made for a test: authorities and what they sign, for servers and for clients.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};

/// A certificate authority of the test.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    Now,
    Expired,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let params = authority_params(DnValue::Utf8String(name.to_owned()));
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// An authority that exists as PEM files, such as the one of the control plane that signs clients. Its subject must be a
    /// single common name.
    pub(crate) fn load(certificate_pem: &str, key_pem: &str, common_name: &str) -> Authority {
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).unwrap();
        let at = super::http::find(&der, common_name.as_bytes())
            .unwrap_or_else(|| panic!("the authority is not named {common_name}"));
        // The API server compares names byte by byte, and a name can be written as two types of string. The type is the byte
        // before the length.
        let name = match der[at - 2] {
            0x13 => DnValue::PrintableString(common_name.try_into().unwrap()),
            _ => DnValue::Utf8String(common_name.to_owned()),
        };
        let key = KeyPair::from_pem(key_pem).unwrap();
        Authority {
            pem: certificate_pem.to_owned(),
            issuer: Issuer::new(authority_params(name), key),
        }
    }

    /// A client of the API server: user name and groups.
    pub(crate) fn client(&self, user: &str, groups: &[&str], validity: Validity) -> Identity {
        let mut params = leaf_params(validity);
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    /// A server under host names or addresses.
    pub(crate) fn server(&self, names: &[&str], validity: Validity) -> Identity {
        let mut params = leaf_params(validity);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = names
            .iter()
            .map(|name| match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*name).try_into().unwrap()),
            })
            .collect();
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        Identity {
            certificate_pem: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key_pem: key.serialize_pem(),
        }
    }
}

impl Identity {
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.certificate_pem.as_bytes())
            .map(Result::unwrap)
            .collect()
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).unwrap()
    }

    pub(crate) fn server_config(&self) -> ServerConfig {
        ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(self.chain(), self.private_key())
            .unwrap()
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn roots(pem: &str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    roots
}

fn authority_params(name: DnValue) -> CertificateParams {
    let mut params = leaf_params(Validity::Now);
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// The subject starts empty: the one that rcgen proposes would be added to ours.
fn leaf_params(validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = match validity {
        Validity::Now => date_time_ymd(2120, 1, 1),
        Validity::Expired => date_time_ymd(2021, 1, 1),
    };
    params
}
