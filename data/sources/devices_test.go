package sources

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/spec"
)

// deviceMessage is a message of a real device with the configuration that reads it.
type deviceMessage struct {
	file, topic string
	columns     map[string]string
	topics      []data.TopicSettings
	time        string // value of the configuration key data.time
	want        []string
}

const (
	thingsTopic = "v3/app1@tenant1/devices/dev1/up"
	chirpTopic  = "application/17c8/device/0101010101010101/event/up"
	spDevice    = "spBv1.0/Sparkplug B Devices/DDATA/Raspberry Pi/Pibrella"
	spNode      = "spBv1.0/Sparkplug B Devices/NDATA/Raspberry Pi"
)

// deviceMessages contains each file of testdata/devices. Each element of want is either a reading, written
// INPUT=VALUE@TIME, where TIME is empty for the time of arrival, or a rejection, written INPUT: REASON: PROBLEM.
var deviceMessages = []deviceMessage{
	{file: "01-zigbee2mqtt.json", topic: "zigbee2mqtt/Living Room",
		columns: map[string]string{"temp_{1}": "zigbee2mqtt/+ temperature"},
		want:    []string{"temp_Living_Room=27.34@"}},
	{file: "02-tasmota-energy.json", topic: "tele/pow1/SENSOR", columns: map[string]string{
		"power": "tele/pow1/SENSOR ENERGY.Power", "factor": "tele/pow1/SENSOR ENERGY.Factor"},
		topics: []data.TopicSettings{{Topic: "tele/+/SENSOR", TimePath: "Time", TimeFormat: "2006-01-02T15:04:05",
			TimeZone: "Europe/Berlin"}},
		want: []string{"factor=0.99@2018-02-15T16:37:10Z", "power=2635@2018-02-15T16:37:10Z"}},
	{file: "02b-tasmota-ds18x20.json", topic: "tele/x/SENSOR",
		columns: map[string]string{"t": "tele/x/SENSOR [Id=0000059352D4].Temperature"}, want: []string{"t=1.2@"}},
	{file: "03-shelly-notifystatus.json", topic: "shelly1/events/rpc",
		columns: map[string]string{"power": "shelly1/events/rpc params.switch:0.apower",
			"voltage": "shelly1/events/rpc params.switch:0.voltage"}, time: "params.ts",
		want: []string{"power=11.5@2026-09-09T09:14:52.88Z", "voltage: missing: the value is absent, null or empty"}},
	{file: "03b-shelly-status-switch.json", topic: "shelly1/status/switch:0",
		columns: map[string]string{"power": "shelly1/status/switch:0 apower"}, time: "params.ts",
		topics: []data.TopicSettings{{Topic: "shelly1/status/#", TimeIsOptional: true}},
		want:   []string{"power=11.5@"}},
	{file: "03c-shelly-ht-temperature.json", topic: "shellyht-livingroom/status/temperature:0",
		columns: map[string]string{"t": "shellyht-livingroom/status/temperature:0 tC"}, want: []string{"t=20.1@"}},
	{file: "04-esphome-state.txt", topic: "node/sensor/id/state",
		columns: map[string]string{"t": "node/sensor/id/state"}, want: []string{"t=21.3@"}},
	{file: "04b-esphome-availability.txt", topic: "node/status",
		columns: map[string]string{"t": "node/sensor/id/state"},
		topics:  []data.TopicSettings{{Topic: "node/sensor/id/state", Availability: "node/status"}},
		want:    []string{"t=unavailable@"}},
	{file: "05-sparkplug-ndata.json", topic: spNode,
		columns: map[string]string{"v": `"spBv1.0/+/NDATA/+" metrics[name=Supply Voltage].value`},
		topics: []data.TopicSettings{{Topic: "spBv1.0/+/NDATA/+", Format: "json", TimePath: "metrics.*.timestamp",
			TimeFormat: "unix_ms"}},
		want: []string{"v=12.3@2017-02-03T17:55:02.122Z"}},
	{file: "05-sparkplug-ndata.json", topic: spNode,
		columns: map[string]string{"v": "spBv1.0/+/NDATA/+ Supply Voltage"},
		want:    []string{"v: malformed: the payload is JSON, but Sparkplug B is encoded with Protobuf: set "}},
	{file: "05b-sparkplug-ddata.json", topic: spDevice,
		columns: map[string]string{"c": `"spBv1.0/+/DDATA/+/+" metrics[name=Inputs/C].value`},
		topics: []data.TopicSettings{{Topic: "spBv1.0/#", Format: "json", TimePath: "timestamp",
			TimeFormat: "unix_ms"}},
		want: []string{"c=true@2017-02-03T17:55:02.122Z"}},
	{file: "05c-sparkplug-ndata.bin", topic: spNode,
		columns: map[string]string{"v": `"spBv1.0/Sparkplug B Devices/+/Raspberry Pi" Supply Voltage`},
		want:    []string{"v=12.3@2017-02-03T17:55:02.122Z"}},
	{file: "05d-sparkplug-ddata.bin", topic: spDevice,
		columns: map[string]string{"a": `"spBv1.0/Sparkplug B Devices/+/Raspberry Pi/Pibrella" Inputs/A`,
			"c_{2}_{3}": "spBv1.0/+/+/+/+ Inputs/C"},
		want: []string{"a: the topics overlap"}},
	{file: "05d-sparkplug-ddata.bin", topic: spDevice,
		columns: map[string]string{"a": "spBv1.0/+/DDATA/+/+ Inputs/A", "c_{2}_{3}": "spBv1.0/+/+/+/+ Inputs/C"},
		want:    []string{"a=true@2017-02-03T17:55:02.122Z", "c_Raspberry_Pi_Pibrella=true@2017-02-03T17:55:02.122Z"}},
	{file: "06-ttn-uplink.json", topic: thingsTopic,
		columns: map[string]string{"t": thingsTopic + " uplink_message.decoded_payload.temperature",
			"rssi": thingsTopic + " uplink_message.rx_metadata[gateway_ids.gateway_id=gtw1].rssi"}, time: "received_at",
		want: []string{"rssi=-35@2020-02-12T15:15:46.014773143Z", "t=1@2020-02-12T15:15:46.014773143Z"}},
	{file: "07-chirpstack-up.json", topic: chirpTopic, time: "time",
		columns: map[string]string{"rssi": chirpTopic + " rxInfo.0.rssi", "t": chirpTopic + " object.temperature"},
		want:    []string{"rssi=-36@2022-07-18T09:34:15.775023242Z", "t: missing: the value is absent, null or empty"}},
	{file: "08-opcua-pubsub.json", topic: "plant/opcua",
		columns: map[string]string{"step": "plant/opcua StepUp[writer=1000]", "other": "plant/opcua StepUp[writer=2]"},
		topics:  []data.TopicSettings{{Topic: "plant/opcua", Format: "opcua"}},
		want: []string{"other: missing: no value with this name and these conditions; the payload has the names \"A",
			"step=23305@2022-03-18T12:55:21.3313539Z"}},
	{file: "08-opcua-pubsub.json", topic: "plant/opcua",
		columns: map[string]string{"step": "plant/opcua Messages[DataSetWriterName=1000].Payload.StepUp.Value"},
		time:    "Messages.*.Payload.*.SourceTimestamp", want: []string{"step=23305@2022-03-18T12:55:21.3313539Z"}},
	{file: "08b-azure-iot-operations.json", topic: "azure-iot-operations/data/thermostat",
		columns: map[string]string{"t": "azure-iot-operations/data/thermostat temperature.Value",
			"tag": `"azure-iot-operations/data/thermostat" Tag 10.Value`}, time: "*.SourceTimestamp",
		want: []string{"t=4558@2024-07-29T15:02:17.1858435Z", "tag=4558@2024-07-29T15:02:17.1858869Z"}},
	{file: "08b-azure-iot-operations.json", topic: "azure-iot-operations/data/thermostat",
		columns: map[string]string{"t": "azure-iot-operations/data/thermostat Tag 10"},
		topics:  []data.TopicSettings{{Topic: "azure-iot-operations/#", Format: "opcua"}},
		want:    []string{"t=4558@2024-07-29T15:02:17.1858869Z"}},
	{file: "09-senml-rfc8428.json", topic: "site/senml",
		columns: map[string]string{"rh": "site/senml urn:dev:ow:10e2073a01080063:[unit=%RH]",
			"lat": "site/senml [unit=lat]"},
		topics: []data.TopicSettings{{Topic: "site/senml", Format: "senml"}},
		want: []string{"lat=60.07965@2011-10-31T13:24:24Z", "lat=60.07965@2011-10-31T13:25:24Z",
			"lat=60.07966@2011-10-31T13:26:24Z", "lat=60.07967@2011-10-31T13:27:24Z",
			"rh=20.3@2011-10-31T13:25:24Z", "rh=20.7@2011-10-31T13:26:24Z", "rh=20@2011-10-31T13:24:24Z",
			"rh=21.2@2011-10-31T13:27:24Z"}},
	{file: "09b-senml-named.json", topic: "site/senml",
		columns: map[string]string{"a": "site/senml urn:dev:ow:10e2073a01080063:current"},
		topics:  []data.TopicSettings{{Topic: "site/senml", Format: "senml"}}, want: []string{"a=1.2@"}},
	{file: "09b-senml-named.json", topic: "site/json", columns: map[string]string{"a": "site/json [n=current].v"},
		want: []string{"a=1.2@"}},
	{file: "10-thin-edge-with-time.json", topic: "te/device/main///m/env_sensor", time: "time",
		columns: map[string]string{"t": "te/device/main///m/env_sensor temperature"},
		want:    []string{"t=25.3@2020-10-15T05:30:47Z"}},
	{file: "10b-thin-edge-without-time.json", topic: "te/device/main///m/env_sensor", time: "time",
		columns: map[string]string{"t": "te/device/main///m/env_sensor temperature"},
		topics:  []data.TopicSettings{{Topic: "te/#", TimeIsOptional: true}}, want: []string{"t=21.3@"}},
	{file: "10b-thin-edge-without-time.json", topic: "te/device/main///m/env_sensor", time: "time",
		columns: map[string]string{"t": "te/device/main///m/env_sensor temperature"},
		want:    []string{`t: bad_time: no time found at the JSON path "time"`}},
	{file: "10c-thin-edge-multi.json", topic: "te/device/main///m/env_sensor", time: "time",
		columns: map[string]string{"l2": "te/device/main///m/env_sensor current.L2"},
		want:    []string{"l2=1.3@2020-10-15T05:30:47Z"}},
	{file: "11-edgex-event.json", topic: "edgex/events/device/a/b/c/d",
		columns: map[string]string{"n": "edgex/events/# event.readings[resourceName=CanineCount].value"},
		topics: []data.TopicSettings{{Topic: "edgex/events/#", TimePath: "event.readings.*.origin",
			TimeFormat: "unix_ns"}}, want: []string{"n=3@2020-10-08T14:41:29.6655652Z"}},
	{file: "12-telegraf-influx-line.txt", topic: "telegraf/host/modbus",
		columns: map[string]string{"p": "telegraf/host/modbus pressure[name=boiler]",
			"t": "telegraf/host/modbus temperature[measurement=modbus]"},
		topics: []data.TopicSettings{{Topic: "telegraf/#", Format: "influx"}},
		want:   []string{"p=1.87@2026-03-01T12:00:00Z", "t=64.5@2026-03-01T12:00:00Z"}},
	{file: "12-telegraf-influx-line.txt", topic: "telegraf/host/modbus",
		columns: map[string]string{"p": "telegraf/host/modbus pressure"}, want: []string{
			"p: malformed: invalid character 'm' looking for beginning of value: `modbus,host=gate`…; the payload " +
				"looks like the format influx: set format: influx for its topic in data.topics"}},
	{file: "13-homeassistant-unavailable.txt", topic: "homeassistant/sensor/x/state",
		columns: map[string]string{"t": "homeassistant/sensor/x/state"}, want: []string{"t=unavailable@"}},
	{file: "14-homeassistant-discovery-config.json", topic: "homeassistant/sensor/x/config",
		columns: map[string]string{"t": "homeassistant/sensor/x/config value"},
		want:    []string{"t: missing: the value is absent, null or empty"}},
	{file: "20-thingsboard.json", topic: "v1/devices/me/telemetry",
		columns: map[string]string{"t": "v1/devices/me/telemetry values.temperature"},
		topics:  []data.TopicSettings{{Topic: "v1/devices/me/telemetry", TimePath: "ts", TimeFormat: "unix_ms"}},
		want:    []string{"t=22.5@2016-01-01T12:00:00.512Z"}},
	{file: "20b-thingsboard-array.json", topic: "v1/devices/me/telemetry",
		columns: map[string]string{"t": "v1/devices/me/telemetry *.values.temperature"},
		topics:  []data.TopicSettings{{Topic: "v1/devices/me/telemetry", TimePath: "*.ts", TimeFormat: "unix_ms"}},
		want:    []string{"t=22.5@2016-01-01T12:00:00Z", "t=22.7@2016-01-01T12:00:01Z"}},
	{file: "20c-thingsboard-gateway.json", topic: "v1/gateway/telemetry",
		columns: map[string]string{"a": `"v1/gateway/telemetry" Device A.*.values.humidity`,
			"b": `"v1/gateway/telemetry" Device B.*.values.humidity`},
		topics: []data.TopicSettings{{Topic: "v1/#", TimePath: "*.*.ts", TimeFormat: "unix_ms"}},
		want:   []string{"a=80@2017-01-01T00:00:00Z", "a=82@2017-01-01T00:00:01Z", "b=80@2017-01-01T00:00:00Z"}},
	{file: "21-telegraf.json", topic: "telegraf/raynor/docker", time: "timestamp",
		columns: map[string]string{"n": "telegraf/+/docker fields.n_images"},
		want:    []string{"n=660@2016-03-17T15:39:00Z"}},
	{file: "21b-telegraf-batch.json", topic: "telegraf/raynor/docker", time: "metrics.*.timestamp",
		columns: map[string]string{"n": "telegraf/+/docker metrics[name=docker][tags.host=raynor].fields.field_2"},
		want:    []string{"n=4@2016-03-17T15:39:00Z", "n=4@2016-03-17T15:39:00Z"}},
	{file: "21c-telegraf-cpu.txt", topic: "telegraf/web01/cpu",
		columns: map[string]string{"idle": "telegraf/web01/cpu usage_idle[cpu=cpu0]",
			"all": "telegraf/web01/cpu usage_idle[cpu=cpu-total]"},
		topics: []data.TopicSettings{{Topic: "telegraf/#", Format: "influx"}},
		want: []string{"all: missing: no value with this name and these conditions; the payload has the names " +
			`"usage_idle", "usage_user"`, "idle=92.5@2024-05-29T16:26:40Z"}},
	{file: "22-neuron-tags.json", topic: "/neuron/mqtt/modbus/grp",
		columns: map[string]string{"a": "/neuron/+/+/+ tags[name=tag0].value",
			"b": "/neuron/+/+/+ tags[name=tag1].value"},
		topics: []data.TopicSettings{{Topic: "/neuron/+/+/+", TimePath: "timestamp", TimeFormat: "unix_ms"}},
		want:   []string{"a=123@2022-03-17T06:09:49.075Z", "b: missing: the value is absent, null or empty"}},
	{file: "22b-neuron-values.json", topic: "/neuron/mqtt/modbus/grp",
		columns: map[string]string{"{1}_{2}_{3}": "/neuron/+/+/+ values.tag0"},
		topics:  []data.TopicSettings{{Topic: "/neuron/#", TimePath: "timestamp", TimeFormat: "unix_ms"}},
		want:    []string{"mqtt_modbus_grp=123@2022-04-15T07:06:28.943Z"}},
	{file: "23-shelly-ht-full-status.json", topic: "shellyplusht-b8d61a8b17cc/events/rpc", time: "params.ts",
		columns: map[string]string{"t": "shellyplusht-b8d61a8b17cc/events/rpc params.temperature:0.tC"},
		want:    []string{"t=19.8@2023-04-08T14:07:59.62Z"}},
	{file: "23b-shelly-gen1.txt", topic: "shellies/shelly1-XXXXXX/ext_temperature/1",
		columns: map[string]string{"t": "shellies/+/ext_temperature/1"}, want: []string{"t=35.75@"}},
	{file: "24-openmqttgateway-ble.json", topic: "home/OpenMQTTGateway/BTtoMQTT/45E174126E00",
		columns: map[string]string{"rssi_{1}": "home/OpenMQTTGateway/BTtoMQTT/+ rssi"},
		want:    []string{"rssi_45E174126E00=-89@"}},
	{file: "24b-openmqttgateway-system.json", topic: "home/OpenMQTTGateway/SYStoMQTT",
		columns: map[string]string{"t": "home/OpenMQTTGateway/SYStoMQTT tempc",
			"m": "home/OpenMQTTGateway/SYStoMQTT modules"},
		want: []string{`m: not_a_number: "[\"LilyGo_SSD1306\",`, "t=57.77778@"}},
	{file: "25-zigbee2mqtt-switch.json", topic: "zigbee2mqtt/switch",
		columns: map[string]string{"action": "zigbee2mqtt/switch action"}, want: []string{"action=single@"}},
	{file: "25b-zigbee2mqtt-occupancy.json", topic: "zigbee2mqtt/hall",
		columns: map[string]string{"o": "zigbee2mqtt/hall occupancy"}, want: []string{"o=true@"}},
	{file: "25c-zigbee2mqtt-lamp.json", topic: "zigbee2mqtt/kitchen/lamp",
		columns: map[string]string{"on": "zigbee2mqtt/kitchen/lamp state", "b": "zigbee2mqtt/kitchen/lamp brightness"},
		want:    []string{"b=215@", "on=ON@"}},
	{file: "26-device-shadow.json", topic: "shadow/update", time: "metadata.reported.*.timestamp",
		columns: map[string]string{"color": "shadow/update state.reported.color"},
		want:    []string{"color=GREEN@2016-07-26T20:21:32Z"}},
	{file: "27-cloudevent.json", topic: "fleet-a/sensors/temp-0042", time: "time",
		columns: map[string]string{"t": "fleet-a/sensors/+ data.celsius"},
		want:    []string{"t=22.4@2026-05-22T14:10:42.512Z"}},
	{file: "28-tasmota-lwt.txt", topic: "tele/pow1/LWT",
		columns: map[string]string{"p": "tele/pow1/SENSOR ENERGY.Power"},
		topics:  []data.TopicSettings{{Topic: "tele/+/SENSOR", Availability: "tele/{1}/LWT"}},
		want:    []string{"p=unavailable@"}},
	{file: "29-homie.txt", topic: "homie/kitchen/light/parameter_power",
		columns: map[string]string{"p": "homie/kitchen/light/parameter_power"}, want: []string{"p=3@"}},
	{file: "30-victron.json", topic: "N/portal/pvinverter/20/Ac/Power",
		columns: map[string]string{"ac_power_{1}": "N/portal/pvinverter/+/Ac/Power value"},
		want:    []string{"ac_power_20=936@"}},
	{file: "30b-victron-invalid.json", topic: "N/portal/pvinverter/20/Ac/L2/Power",
		columns: map[string]string{"p": "N/portal/pvinverter/20/Ac/L2/Power value"},
		want:    []string{"p: missing: the value is absent, null or empty"}},
	{file: "30c-victron-device-gone.json", topic: "N/portal/pvinverter/20/Ac/Power",
		columns: map[string]string{"p": "N/portal/pvinverter/20/Ac/Power value"},
		want:    []string{"p: missing: the payload is empty"}},
	{file: "31-tasmota-zigbee.json", topic: "tele/zigbee/SENSOR", columns: map[string]string{
		"name": "tele/zigbee/SENSOR ZbReceived.IKEA_Light.Dimmer",
		"id":   "tele/zigbee/SENSOR ZbReceived[Device=0x5ADF].Dimmer",
		"hall": "tele/zigbee/SENSOR ZbReceived.Hall.Temperature"},
		topics: []data.TopicSettings{{Topic: "tele/+/SENSOR", TimePath: "Time", TimeFormat: "2006-01-02T15:04:05",
			TimeIsOptional: true}},
		want: []string{"hall: missing: the value is absent, null or empty", "id=102@", "name=102@"}},
	{file: "32-industrial-edge-databus.json", topic: "ie/d/j/simatic/v1/custom1/dp/r/Connection_1/Collection_1",
		time: "vals.*.ts", columns: map[string]string{
			"running": "ie/d/j/simatic/v1/custom1/dp/r/+/+ vals[id=101].val",
			"level":   "ie/d/j/simatic/v1/custom1/dp/r/+/+ vals[id=103].val"},
		want: []string{"level=4.123@2022-07-21T13:01:50.159Z", "running=false@2022-07-21T13:01:50.159Z"}},
	{file: "33-zwave-js-ui.json", topic: "zwave/kitchen/dimmer/switch_multilevel/endpoint_0/currentValue",
		columns: map[string]string{"{2}": "zwave/+/+/switch_multilevel/endpoint_0/currentValue value"},
		topics:  []data.TopicSettings{{Topic: "zwave/#", TimePath: "time", TimeFormat: "unix_ms"}},
		want:    []string{"dimmer=10@2019-01-28T13:52:03.859Z"}},
	{file: "33-zwave-js-ui.json", topic: "zwave/kitchen/dimmer/switch_multilevel/endpoint_0/currentValue",
		columns: map[string]string{"v": "zwave/+/+/switch_multilevel/endpoint_0/currentValue value"}, time: "time",
		want: []string{`v: bad_time: "1548683523859" is not a time in the format 2026-03-01T12:00:00Z or in seconds ` +
			`since 1970: set data.time_format to "unix_ms"`}},
	{file: "34-kepserverex.json", topic: "kepserver",
		columns: map[string]string{"a": `"kepserver" [tagname=Group A.Device C - D.Tag 42].value`,
			"b": `"kepserver" [tagname=Group B.Device A - F.Tag 7].value`},
		topics: []data.TopicSettings{{Topic: "kepserver", TimePath: "*.timestamp", TimeFormat: "unix_ms"}},
		want:   []string{"a=1291@2022-05-03T18:56:24.861Z", "b=185.2@2022-05-03T18:56:25.02Z"}},
	{file: "35-cirrus-link-dbirth.json", topic: "site/ignition",
		columns: map[string]string{"t": "site/ignition payload.metrics[name=T1].value"},
		topics: []data.TopicSettings{{Topic: "site/ignition", TimePath: "payload.metrics.*.timestamp",
			TimeFormat: "unix_ms"}},
		want: []string{"t=12@2021-11-29T21:57:53.192Z"}},
	{file: "36-theengs.json", topic: "home/TheengsGateway/BTtoMQTT/F35285",
		columns: map[string]string{"temp_{1}": "home/TheengsGateway/BTtoMQTT/+ tempc"},
		want:    []string{"temp_F35285=24.1@"}},
	{file: "37-ruuvi-gateway.json", topic: "ruuvi/CA:56:56:28:2D:3C/C3:32:96:A8:2A:06", time: "ts",
		columns: map[string]string{"rssi": "ruuvi/+/C3:32:96:A8:2A:06 rssi", "aoa": "ruuvi/+/C3:32:96:A8:2A:06 aoa",
			"raw": "ruuvi/+/C3:32:96:A8:2A:06 data"},
		want: []string{`aoa: not_a_number: "[]" is not a number`,
			"raw=0201061BFF990405004D74EDCA130408FE24FFE882161F69DEC33296A82A06@2022-10-31T05:32:14Z",
			"rssi=-60@2022-10-31T05:32:14Z"}},
	{file: "38-wmbusmeters.json", topic: "wmbusmeters/55775511", time: "timestamp",
		columns: map[string]string{"flow": "wmbusmeters/55775511 volume_flow_m3h",
			"supply": "wmbusmeters/55775511 t1_temperature_c"},
		want: []string{"flow=1.005@2023-01-14T07:20:22Z", "supply=59.53@2023-01-14T07:20:22Z"}},
	{file: "39-telegraf-opcua.txt", topic: "telegraf/edge/opcua",
		columns: map[string]string{"node": "telegraf/edge/opcua name[id=ns=3;i=1002]", "saw": "telegraf/edge/opcua saw",
			"sin": "telegraf/edge/opcua sin[measurement=group2_metric_name][group2_tag=val3]"},
		topics: []data.TopicSettings{{Topic: "telegraf/#", Format: "influx"}},
		want: []string{"node=-1.389117@2020-12-02T07:14:06Z", "saw=-1.6@2020-12-02T07:14:06Z",
			"sin=1.902113@2020-12-02T07:14:06Z"}},
	{file: "39b-telegraf-modbus.txt", topic: "telegraf/orangepizero/modbus.InputRegisters",
		columns: map[string]string{"v": "telegraf/+/modbus.InputRegisters Voltage[host=orangepizero]"},
		topics:  []data.TopicSettings{{Topic: "telegraf/#", Format: "influx"}},
		want:    []string{"v=123.9000015258789@2019-04-01T00:45:21Z"}},
	{file: "40-aws-iot-lorawan.json", topic: "lorawan/room", time: "WirelessMetadata.LoRaWAN.Timestamp",
		columns: map[string]string{"t": "lorawan/room PayloadData.EnvTemp",
			"snr": "lorawan/room WirelessMetadata.LoRaWAN.Gateways[GatewayEui=d788ab85896d60b8].Snr"},
		want: []string{"snr=9.5@2021-04-07T16:02:10Z", "t=19@2021-04-07T16:02:10Z"}},
	{file: "41-rtl-433.json", topic: "rtl_433/Fineoffset-WH0290/100",
		columns: map[string]string{"pm25_{2}": "rtl_433/+/+ pm2_5_ug_m3"},
		topics:  []data.TopicSettings{{Topic: "rtl_433/+/+", TimePath: "time", TimeFormat: "2006-01-02 15:04:05"}},
		want:    []string{"pm25_100=6@2023-11-12T12:25:10Z"}},
	{file: "41-rtl-433.json", topic: "rtl_433/Fineoffset-WH0290/100",
		columns: map[string]string{"pm25": "rtl_433/Fineoffset-WH0290/100 pm2_5_ug_m3"}, time: "time",
		want: []string{`pm25: bad_time: "2023-11-12 12:25:10" is not a time in the format 2026-03-01T12:00:00Z or in ` +
			`seconds since 1970: set data.time_format to "2006-01-02 15:04:05"`}},
	{file: "42-advantech-adam.json", topic: "Advantech/00D0C9EFDBBD/data", columns: map[string]string{
		"door": "Advantech/+/data di4", "pump": "Advantech/+/data do6", "ai": "Advantech/+/data ai1"},
		want: []string{"ai: missing: the value is absent, null or empty", "door=true@", "pump=false@"}},
	{file: "42-advantech-adam.json", topic: "Advantech/00D0C9EFDBBD/data", time: "t",
		columns: map[string]string{"door": "Advantech/+/data di4"},
		want:    []string{"door: bad_time: 1970-01-01T00:00:00Z is before the year 2000"}},
}

// TestDevices checks the readings of messages of real devices, or the reason for rejecting them.
func TestDevices(t *testing.T) {
	const folder = "testdata/devices"
	var tested []string
	for _, tt := range deviceMessages {
		tested = append(tested, tt.file)
		text, err := os.ReadFile(filepath.Join(folder, tt.file))
		if err != nil {
			t.Fatal(err)
		}
		if got := readDeviceMessage(t, tt, text); !equalPrefixes(got, tt.want) {
			t.Errorf("%s\n got %q\nwant %q", tt.file, got, tt.want)
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() != "SOURCE.md" && !slices.Contains(tested, f.Name()) {
			t.Errorf("%s is not tested", f.Name())
		}
	}
}

// deviceArrival is the time at which the messages arrive.
var deviceArrival = time.Date(2026, 9, 10, 12, 0, 0, 0, time.UTC)

// readDeviceMessage returns the readings and the rejections of a message, in the form of deviceMessage.want.
func readDeviceMessage(t *testing.T, m deviceMessage, text []byte) (got []string) {
	t.Helper()
	c := data.Config{Source: data.SourceMQTT, ColumnByInput: m.columns, TopicSettings: m.topics, TimeColumn: m.time}
	var problems spec.ProblemList
	CheckConfig(&c, &problems, "data")
	CheckConfigAgainstFile(&c, &problems, "data")
	all, err := parseTopicSubscriptions(&c)
	if err != nil && strings.Contains(err.Error(), "overlap") {
		return []string{"a: the topics overlap"}
	}
	if problems.Err() != nil || err != nil {
		t.Fatalf("%s: %v, %v", m.file, problems.Err(), err)
	}
	stats := newSourceStats(func() time.Time { return deviceArrival }, slog.New(slog.DiscardHandler))
	for i := range all {
		all[i].stats = stats
		all[i].addReading = func(r data.Reading) {
			value, at := fmt.Sprint(r.Value), ""
			if r.Text != "" {
				value = r.Text
			}
			if r.Time != deviceArrival.UnixNano() {
				at = time.Unix(0, r.Time).UTC().Format(time.RFC3339Nano)
			}
			got = append(got, r.Input+"="+value+"@"+at)
		}
	}
	topicSubscriptions(all).forEachMatchingSubscription(m.topic, func(s *topicSubscription) {
		s.parsePayload(text, payloadMeta{m.topic, topicHash(m.topic), deviceArrival, false})
	})
	for _, c := range stats.columnReports() {
		for _, why := range slices.Sorted(maps.Keys(c.Unused)) {
			got = append(got, fmt.Sprintf("%s: %s: %s", c.Name, why, c.LastUnusedProblem))
		}
	}
	slices.Sort(got)
	return got
}

// equalPrefixes reports whether each text of got begins with the text of want at the same index.
func equalPrefixes(got, want []string) bool {
	return slices.EqualFunc(got, want, strings.HasPrefix)
}
