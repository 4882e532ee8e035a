"""Sets of values that the chart is rendered with."""

import pytest

from tests.chart.rendering import Values

DIGEST = "sha256:" + "ab" * 32

PLACEMENT: Values = {
    "podAnnotations": {"example.org/note": "mind the bell"},
    "podLabels": {"example.org/team": "bells"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "carillon", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
            }
        }
    },
    "priorityClassName": "high",
}
# Values that must be found in Secrets alone.
SECRETS: Values = {
    "databaseUrl": "postgresql://carillon:password-of-postgres@db/carillon",
    "migrationDatabaseUrl": "postgresql://owner:password-of-the-owner@db/carillon",
    "redisUrl": "redis://:password-of-redis@redis:6379/0",
    "adminToken": "token-of-the-admin",
    "signingSecret": "whsec_c2VjcmV0IG9mIHRoZSBzaWduZXI=",
    "cronRunToken": "token-of-the-cron-ping",
    "oidcClientSecret": "secret-of-the-client",
}
DOCUMENT: Values = {
    "namespace": "billing",
    "workflows": [
        {
            "name": "invoice",
            "nodes": [
                {"id": "start", "type": "trigger_schedule"},
                {
                    "id": "call",
                    "type": "core.http_request",
                    "config": {"url": "http://x/{{ trigger.payload.y }}"},
                },
            ],
            "edges": [{"from": "start", "to": "call"}],
        }
    ],
    "schedules": [
        {"name": "yearly", "workflow": "invoice", "interval_seconds": 31536000, "only_between": "08:00-18:00"},
        {"name": "nightly", "workflow": "invoice", "cron": "0 2 * * *", "not_on": ["sat", "7"], "jitter_seconds": 0.5},
    ],
}
MONITORING: Values = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podMonitor": {"enabled": True, "interval": "10s", "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Bells"}},
}

DEFAULTS: Values = {}
MINIMAL: Values = {"existingSecret": "stores"}
EXISTING: Values = {
    "existingSecret": "stores",
    "secretKeys": {
        "databaseUrl": "uri",
        "migrationDatabaseUrl": "owner.uri",
        "redisUrl": "redis.uri",
        "adminToken": "ADMIN",
        "signingSecret": "SIGNING",
        "cronRunToken": "CRON",
        "oidcClientSecret": "OIDC",
    },
    "secretNames": {"databaseUrl": "postgres-app"},
}
CREATED: Values = {
    "secret": {"create": True, **SECRETS},
    "secretKeys": {
        "migrationDatabaseUrl": "migration-database-url",
        "cronRunToken": "cron-run-token",
        "oidcClientSecret": "oidc-client-secret",
    },
}
BY_DIGEST: Values = {"existingSecret": "stores", "image": {"tag": "ignored", "digest": DIGEST}}
KEDA: Values = {**EXISTING, "worker": {"autoscaling": {"enabled": True, "kind": "keda", "minReplicas": 1}}}
HIGHLY_AVAILABLE: Values = {
    "existingSecret": "stores",
    "api": {
        "replicas": 3,
        "autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 30},
        "podDisruptionBudget": {"maxUnavailable": "34%"},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    },
    "worker": {
        "processes": 4,
        "autoscaling": {"enabled": True, "kind": "hpa", "metricLabels": {"namespace": "bells"}},
    },
    "networkPolicy": {"enabled": True},
}
GATEWAY: Values = {
    "existingSecret": "stores",
    "httpRoute": {
        "enabled": True,
        "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}],
        "hostnames": ["bells.example.org"],
        "annotations": {"example.org/owner": "bells"},
    },
}
EVERYTHING: Values = {
    **CREATED,
    "settings": {
        "httpAllow": ["10.0.0.0/8", "hooks.internal"],
        "httpCaFile": "/authorities/ca.crt",
        "drainSeconds": 90.5,
        "logLevel": "debug",
        "historyDays": 90,
        "auditDays": 365,
        "publicUrl": "https://bells.example.org",
        "secretsDir": "/secrets",
        "schedulesEnabled": False,
        "otelEndpoint": "http://collector.monitoring:4318",
        "otelSampleRatio": 0.1,
        "traceUrl": "https://traces.example.org/trace/{trace_id}",
        "trustedProxies": ["10.0.0.0/8", "fd00::/8"],
        "oidcIssuer": "https://login.example.org/realms/bells",
        "oidcClientId": "carillon",
        "oidcAdminGroup": "ops",
        "oidcTeamPrefix": "carillon-",
        "oidcCaFile": "/issuer/ca.crt",
        "oidcTokenFile": "/issuer/token",
        "kubernetesIssuer": "https://kubernetes.default.svc.cluster.local",
        "kubernetesCaFile": "/kubernetes/ca.crt",
        "kubernetesTokenFile": "/kubernetes/token",
    },
    "extraEnv": [
        {"name": "TZ", "value": "UTC"},
        {"name": "CARILLON_SECRET_HOOK", "valueFrom": {"secretKeyRef": {"name": "hooks", "key": "token"}}},
    ],
    "extraEnvFrom": [{"secretRef": {"name": "more"}}],
    "extraVolumes": [{"name": "secrets", "secret": {"secretName": "hooks"}}],
    "extraVolumeMounts": [{"name": "secrets", "mountPath": "/secrets", "readOnly": True}],
    "image": {"repository": "team/carillon", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "runAs": {"user": 1000650000, "group": 1000650000},
    "serviceAccount": {"name": "bells", "annotations": {"example.org/role": "bells"}},
    "api": {
        "autoscaling": {"enabled": True, "behavior": {"scaleDown": {"selectPolicy": "Disabled"}}},
        "metricsPort": 9300,
        **PLACEMENT,
    },
    "worker": {"autoscaling": {"enabled": True}, "metricsPort": 9200, **PLACEMENT},
    "migrations": {"runtimeRole": "carillon_runtime", "partitionsSchedule": "17 3 * * *"},
    "jobs": {"backoffLimit": 0, "activeDeadlineSeconds": 3600, **PLACEMENT},
    "schedules": {"billing": DOCUMENT, "reports": {"namespace": "reports"}},
    "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"example.org/lb": "internal"}},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"example.org/size": "1m"},
        "hosts": ["bells.example.org", "*.bells.example.org"],
        "tls": [{"secretName": "bells-tls", "hosts": ["bells.example.org"]}],
    },
    "httpRoute": GATEWAY["httpRoute"],
    "networkPolicy": {
        "enabled": True,
        "apiFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "dns": {"ports": [53, 5353]},
        "postgres": {"port": 6432, "to": [{"podSelector": {"matchLabels": {"cnpg.io/cluster": "postgres"}}}]},
        "identityProvider": {"port": 6443, "to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}]},
        "collector": {"port": 4319, "to": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
        "webhooks": {"ports": [80, 443]},
        "extraEgress": [{"ports": [{"protocol": "TCP", "port": 8125}], "to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}],
    },
    "monitoring": MONITORING,
    "fullnameOverride": "bells",
}
OPERATOR: Values = {
    "existingSecret": "stores",
    "operator": {
        "enabled": True,
        "tokensSecret": "tokens",
        "namespaces": ["shop", "billing"],
        "namespacePrefix": "c1.",
        "replicas": 2,
        **PLACEMENT,
    },
    "networkPolicy": {"enabled": True, "apiFrom": [{"podSelector": {}}]},
    "monitoring": MONITORING,
}
LEAST: Values = {
    "existingSecret": "stores",
    "secretKeys": {"adminToken": "", "signingSecret": ""},
    "runAs": {"user": None, "group": None},
    "serviceAccount": {"create": False},
    "api": {"replicas": 1, "topologySpreadConstraints": []},
    "worker": {"replicas": 1, "topologySpreadConstraints": []},
    "migrations": {"enabled": False},
    "schedules": {"billing": DOCUMENT},
    "networkPolicy": {"enabled": True},
}

MATRIX = {
    "defaults": DEFAULTS,
    "minimal": MINIMAL,
    "everything": EVERYTHING,
    "highly-available": HIGHLY_AVAILABLE,
    "digest": BY_DIGEST,
    "existing-secret": EXISTING,
    "created-secret": CREATED,
    "keda": KEDA,
    "gateway": GATEWAY,
    "least": LEAST,
    "operator": OPERATOR,
    "operator-everywhere": {"settings": {"kubernetesIssuer": "https://k.example.org"}, "operator": {"enabled": True}},
}
every_values = pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
