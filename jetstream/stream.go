package jetstream

import (
	"fmt"
	"strconv"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
)

// Names of the streams, buckets and stores. The log's shards are named by
// logStream.
const (
	streamCommands = "AGENT_COMMANDS"
	streamWork     = "AGENT_WORK"
	streamEvents   = "AGENT_EVENTS"
	streamTimers   = "AGENT_TIMERS"
	streamDead     = "AGENT_DEAD"

	bucketDefinitions = "AGENT_DEFINITIONS"
	bucketLeases      = "AGENT_LEASES"
	bucketSnapshots   = "AGENT_SNAPSHOTS"
	bucketKeys        = "AGENT_KEYS"
	storeObjects      = "AGENT_OBJECTS"
)

func logStream(shard int) string { return "AGENT_LOG_" + strconv.Itoa(shard) }

// The metadata of a log stream: what a process must agree with to find a
// session in it.
const (
	metadataShards = "agentruntime.shards"
	metadataHash   = "agentruntime.hash"
)

// role says what a stream's loss would mean, and so what it must not be.
type role int

const (
	hint  role = iota // can be rebuilt, is never awaited on a run's path
	truth             // exists nowhere else
)

// spec is one stream as it must be.
type spec struct {
	natsjs.StreamConfig
	role  role
	keeps bool // nothing in it may age out or be pushed out
}

// streams returns every stream, the log's shards first.
func (l Layout) streams() []spec {
	var all []spec
	for k := range l.Shards {
		all = append(all, l.log(k))
	}
	return append(all,
		l.truth(natsjs.StreamConfig{
			Name:        streamCommands,
			Description: "commands not yet acknowledged",
			Subjects:    []string{"agent.cmd.*.>"},
			Retention:   natsjs.WorkQueuePolicy,
		}, true),
		l.hint(natsjs.StreamConfig{
			Name:        streamWork,
			Description: "sessions that may have something to do",
			Subjects:    []string{"agent.work.*.*"},
			Retention:   natsjs.WorkQueuePolicy,
		}, true),
		l.hintOnFile(natsjs.StreamConfig{
			Name:        streamEvents,
			Description: "public events",
			Subjects:    []string{"agent.event.>"},
			MaxAge:      l.EventAge,
			AllowDirect: true,
		}, false),
		l.hint(natsjs.StreamConfig{
			Name:              streamTimers,
			Description:       "pending and fired timers",
			Subjects:          []string{"agent.timer.>", "agent.fired.>"},
			AllowMsgSchedules: true,
			AllowMsgTTL:       true,
			AllowRollup:       true,
		}, true),
		l.truth(natsjs.StreamConfig{
			Name:        streamDead,
			Description: "refused commands and poison",
			Subjects:    []string{"agent.dead.*.*"},
			MaxAge:      l.DeadAge,
			AllowDirect: true,
		}, false),
		l.truth(bucket(bucketDefinitions, "agent definitions"), true),
		l.keys(),
		l.leases(),
		l.hintOnFile(bucket(bucketSnapshots, "snapshots of session folds"), false),
		l.truth(natsjs.StreamConfig{
			Name:        "OBJ_" + storeObjects,
			Description: "payloads over the inline limit, named by content hash",
			Subjects:    []string{"$O." + storeObjects + ".C.>", "$O." + storeObjects + ".M.>"},
			Discard:     natsjs.DiscardNew,
			AllowRollup: true,
			AllowDirect: true,
		}, true))
}

// log is one shard. The package comment gives the reason of every flag.
func (l Layout) log(shard int) spec {
	return l.truth(natsjs.StreamConfig{
		Name:        logStream(shard),
		Description: "facts of sessions and their budget ledgers",
		Subjects:    []string{fmt.Sprintf("agent.log.%d.>", shard), fmt.Sprintf("agent.budget.%d.>", shard)},
		Discard:     natsjs.DiscardNew,
		DenyDelete:  true,
		AllowDirect: true,
		Metadata:    map[string]string{metadataShards: strconv.Itoa(l.Shards), metadataHash: events.ShardHash},
	}, true)
}

// keys is a bucket whose entries can be overwritten where they are stored. The
// marker of an erased key must not push the key out before that.
func (l Layout) keys() spec {
	config := bucket(bucketKeys, "wrapped keys of sessions")
	config.DenyDelete, config.MaxMsgsPerSubject = false, 2
	return l.truth(config, true)
}

// leases is a bucket whose keys expire each at its own time.
func (l Layout) leases() spec {
	config := bucket(bucketLeases, "who runs which session")
	config.AllowMsgTTL = true
	return l.hint(config, false)
}

// bucket is a key-value bucket as the nats command line expects one.
func bucket(name, description string) natsjs.StreamConfig {
	return natsjs.StreamConfig{
		Name:              "KV_" + name,
		Description:       description,
		Subjects:          []string{"$KV." + name + ".>"},
		Discard:           natsjs.DiscardNew,
		MaxMsgsPerSubject: 1,
		DenyDelete:        true,
		AllowRollup:       true,
		AllowDirect:       true,
	}
}

// truth is synced before each acknowledgement, wherever it stands.
func (l Layout) truth(config natsjs.StreamConfig, keeps bool) spec {
	config.Storage = natsjs.FileStorage
	return l.common(config, truth, keeps)
}

// hint costs no sync: on one server it is written behind, on several it lives
// in memory, since a replicated stream cannot be written behind and memory of
// one server does not survive its restart.
func (l Layout) hint(config natsjs.StreamConfig, keeps bool) spec {
	if l.Replicas > 1 {
		config.Storage = natsjs.MemoryStorage
		return l.common(config, hint, keeps)
	}
	return l.hintOnFile(config, keeps)
}

// hintOnFile is a hint too large for memory.
func (l Layout) hintOnFile(config natsjs.StreamConfig, keeps bool) spec {
	config.Storage = natsjs.FileStorage
	if l.Replicas == 1 {
		config.PersistMode = natsjs.AsyncPersistMode
	}
	return l.common(config, hint, keeps)
}

// duplicateWindow is how long a message id is remembered. Nothing relies on
// it; it spares a retried command its second look.
const duplicateWindow = 2 * time.Minute

func (l Layout) common(config natsjs.StreamConfig, r role, keeps bool) spec {
	config.Replicas = l.Replicas
	config.Duplicates = duplicateWindow
	if config.MaxAge > 0 {
		config.Duplicates = min(duplicateWindow, config.MaxAge)
	}
	return spec{config, r, keeps}
}
