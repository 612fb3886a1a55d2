// A job of tests/support/copier.py for franz-go: it copies until it is killed.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type job struct {
	Bootstrap, Id, Group, Source, Target string
}

func (j job) copy() error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(j.Bootstrap),
		kgo.TransactionalID(j.Id),
		kgo.TransactionTimeout(3*time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumerGroup(j.Group),
		kgo.ConsumeTopics(j.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(3*time.Second),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for {
		poll, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := session.PollRecords(poll, 50)
		cancel()
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := j.one(session, fetches); err != nil {
			return err
		}
	}
}

func (j job) one(session *kgo.GroupTransactSession, fetches kgo.Fetches) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := session.Begin(); err != nil {
		return err
	}
	failed := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(r *kgo.Record) {
		copied := &kgo.Record{Topic: j.Target, Partition: r.Partition, Value: r.Value}
		session.Produce(ctx, copied, failed.Promise())
	})
	// An end that does not commit has rewound the consumer.
	_, err := session.End(ctx, failed.Err() == nil)
	return err
}

func main() {
	var j job
	if err := json.Unmarshal([]byte(os.Args[1]), &j); err != nil {
		panic(err)
	}
	for {
		fmt.Println(time.Now().Unix(), j.copy())
		time.Sleep(100 * time.Millisecond)
	}
}
